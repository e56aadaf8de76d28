"""A delta that is damaged or incomplete is rejected before its version is made."""

from pathlib import Path

import pytest

from rlfleet_sidecar.errors import SidecarError
from tests.fakes.deltas.indexed import write_delta
from tests.fakes.deltas.spoilt import SPOILED
from tests.fakes.deltas.tensors import Tensors, trained
from tests.unit.rlfleet_sidecar.deltas.conftest import Folded


@pytest.mark.parametrize("way", SPOILED)
def test_a_spoiled_delta_is_rejected_with_its_file_and_what_to_do(
    way: str, base: Tensors, weights: Path, fold: Folded
) -> None:
    code, words, spoil = SPOILED[way]
    directory = write_delta(weights, 1, base, trained(base, 1))
    spoil(directory)

    with pytest.raises(SidecarError) as caught:
        fold(["weight_v000001"])

    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.message.startswith(str(directory))
    assert ";" in caught.value.message
