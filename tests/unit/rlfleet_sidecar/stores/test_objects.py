"""Which objects may be read: those whose rewrite would show."""

from datetime import UTC, datetime
from pathlib import Path

import obstore
import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.headers import refuse_unmerged
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.stores.client import Opened
from rlfleet_sidecar.stores.objects import ObjectEntry, StoreFolder
from rlfleet_sidecar.stores.places import StorePlaces
from rlfleet_sidecar.stores.url import StoreUrl
from tests.fakes import file_server, google_bucket

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


def test_what_lies_deeper_in_a_bucket_is_named_as_on_a_volume() -> None:
    with google_bucket.serving() as google:
        for name in ("config.json", "lora_adapter/adapter_config.json"):
            google.put(f"run/step-1/{name}", b"{}")
        opened = Opened(obstore, obstore.store.from_url("gs://weights", **google.options))
        folder = StoreFolder(opened, StoreUrl.of("gs://weights/run/step-1"))

        assert folder.names() == ["config.json", "lora_adapter"]
        assert [stamp.name for stamp in folder.stamps()] == ["config.json"]
        with pytest.raises(SidecarError, match="merge it into them"):
            refuse_unmerged(folder)


def test_an_adapter_below_a_version_of_a_plain_server_is_seen(tmp_path: Path) -> None:
    below = tmp_path / "step-1" / "lora_adapter"
    below.mkdir(parents=True)
    for place in (below.parent / "config.json", below / "adapter_config.json"):
        place.write_text("{}")
    with file_server.serving(tmp_path) as server:
        source = f"{server.url}/{{version}}"
        settings = SidecarSettings.model_validate(
            {
                "model_name": "m",
                "model_path": tmp_path,
                "weights_source": source,
                "cache_dir": tmp_path,
            }
        )
        with (
            StorePlaces(settings, source).open("step-1") as folders,
            pytest.raises(SidecarError, match="merge it into them"),
        ):
            refuse_unmerged(folders[-1])
