"""The ways through the tree that docs/architecture.md shows are those that the code takes."""

import pytest

from dev.docs.tree import COMMAND, PATCH, REQUEST, drawn, way

MOST_HOPS = 10


@pytest.mark.parametrize("hops", [PATCH, REQUEST], ids=["patch", "request"])
def test_a_way_is_short(hops: tuple[object, ...]) -> None:
    assert len(hops) <= MOST_HOPS


def test_six_frames_lead_from_the_sidecar_s_route_to_the_act() -> None:
    assert len(COMMAND) - 1 <= 6


@pytest.mark.parametrize("change", [{"function": "gone"}, {"mentions": "what_is_not_there("}])
def test_a_hop_that_the_code_has_left_is_an_error(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="correct the hop"):
        list(way([PATCH[0]._replace(**change)]))


def test_every_folder_says_what_it_is() -> None:
    assert "|  |" not in drawn()
