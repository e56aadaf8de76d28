"""The chain to a delta begins at the nearest version that is whole."""

from collections.abc import Mapping

import pytest

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_sidecar.deltas.chain import chain_to
from rlfleet_sidecar.deltas.formats.delta import Delta
from rlfleet_sidecar.deltas.formats.names import WEIGHTS
from rlfleet_sidecar.deltas.published import Published
from rlfleet_sidecar.errors import SidecarError

FULL = Published(None)


def deltas(*numbers: int) -> dict[int, Published]:
    return {
        number: Published(Delta(number, number - 1, {}), identity=str(number)) for number in numbers
    }


@pytest.mark.parametrize(
    ("there", "staged", "start", "applied"),
    [
        (deltas(1, 2, 3), (), BASE_VERSION, [1, 2, 3]),
        (deltas(1, 2, 3), (2,), "weight_v000002", [3]),
        (deltas(1, 2, 3), (1,), "weight_v000001", [2, 3]),
        (deltas(1, 2, 3), (3,), BASE_VERSION, [1, 2, 3]),
        (deltas(1, 3) | {2: FULL}, (), "weight_v000002", [3]),
        (deltas(2, 3) | {1: FULL}, (2,), "weight_v000002", [3]),
        (deltas(1, 2) | {3: FULL}, (), "weight_v000003", []),
        (deltas(1, 2, 3) | {0: FULL}, (), "weight_v000000", [1, 2, 3]),
    ],
)
def test_a_chain_goes_down_to_the_first_whole_version(
    there: Mapping[int, Published], staged: tuple[int, ...], start: str, applied: list[int]
) -> None:
    names = {WEIGHTS.name(number) for number in staged}

    found = chain_to(WEIGHTS, 3, names.__contains__, there.get)

    assert (found.start, [link.number for link in found.links]) == (start, applied)


def test_a_gap_is_waited_for_and_never_bridged() -> None:
    with pytest.raises(SidecarError, match="weight_v000002 does not exist") as caught:
        chain_to(WEIGHTS, 3, lambda _: False, deltas(1, 3).get)

    assert caught.value.code == "CheckpointIncomplete"
    assert "weight_v000003 is a delta" in caught.value.message


def test_a_version_that_is_missing_itself_is_waited_for() -> None:
    with pytest.raises(SidecarError) as caught:
        chain_to(WEIGHTS, 3, lambda _: False, deltas(1, 2).get)

    assert caught.value.code == "VersionNotFound"
