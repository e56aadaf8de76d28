"""Which objects may be read: those whose rewrite would show."""

from datetime import UTC, datetime

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.objects import ObjectEntry
from rlfleet_sidecar.stores.url import StoreUrl

PLACE = StoreUrl.of("s3://bucket/run/step-1/model.safetensors")


def entry(tag: str | None, size: int = 7, second: int = 1) -> ObjectEntry:
    modified = datetime(2026, 1, 1, 0, 0, second, 999, tzinfo=UTC)
    meta = {"e_tag": tag, "size": size, "last_modified": modified}
    return ObjectEntry.of("model.safetensors", PLACE, meta)


@pytest.mark.parametrize("tag", [None, "", 'W/"abc"'])
def test_an_object_whose_rewrite_need_not_show_is_rejected(tag: str | None) -> None:
    with pytest.raises(SidecarError, match="has no strong ETag") as caught:
        entry(tag)
    assert caught.value.code is Code.CHECKPOINT_INVALID


def test_another_state_of_an_object_is_another_file() -> None:
    known = entry('"abc"').stamp

    assert known == entry('"abc"').stamp
    assert known not in {
        entry('"abd"').stamp,
        entry('"abc"', size=8).stamp,
        entry('"abc"', second=2).stamp,
    }
