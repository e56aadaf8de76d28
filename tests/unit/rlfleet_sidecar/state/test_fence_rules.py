"""Which commands count: the rules of epochs and numbers, case by case."""

from typing import Any

import pytest

from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.fence_rules import (
    KEPT,
    SeenCommands,
    StoredAnswer,
    demand_addressee,
    demand_unled,
    judge_fence,
)

OK = StoredAnswer(status=200, body="{}")


def fence(epoch: int, sequence: int, **fields: Any) -> Fence:
    return Fence(**({"fleet": "f", "pod": "p", "epoch": epoch, "sequence": sequence} | fields))


def verdict(
    heard: SeenCommands, made: Fence, digest: str = "d", **fields: bool
) -> StoredAnswer | Code | None:
    try:
        return judge_fence(heard, made, digest, **fields)
    except SidecarError as error:
        return error.code


HEARD = (
    SeenCommands()
    .receiving(fence(3, 4), "d")
    .answering(fence(3, 4), OK)
    .receiving(fence(3, 6), "d")
    .receiving(fence(3, 7), "d")
)
OVER = HEARD.ending(Place(3, 8))
CASES = {
    "a first command": (SeenCommands(), fence(0, 0), None),
    "a higher epoch": (HEARD, fence(4, 0), None),
    "a lower epoch": (HEARD, fence(2, 99), Code.STALE_EPOCH),
    "the next number": (HEARD, fence(3, 8), None),
    "a repeat": (HEARD, fence(3, 4), OK),
    "the newest, cut off": (HEARD, fence(3, 7), None),
    "an older one, cut off": (HEARD, fence(3, 6), Code.STALE_EPOCH),
    "one that was overtaken": (HEARD, fence(3, 5), Code.STALE_EPOCH),
    "one from before what is kept": (HEARD, fence(3, 1), Code.STALE_EPOCH),
    "one that was given up and never came": (OVER, fence(3, 8), Code.STALE_EPOCH),
    "the newest, cut off and given up": (OVER, fence(3, 7), Code.STALE_EPOCH),
    "one that was answered and given up": (OVER, fence(3, 4), OK),
    "the next after those that were given up": (OVER, fence(3, 9), None),
    "one after a later driver spoke": (HEARD.ending(Place(4, 0)), fence(3, 8), Code.STALE_EPOCH),
    "one of a later driver that spoke": (HEARD.ending(Place(4, 0)), fence(4, 1), None),
    "an earlier driver's word is none": (HEARD.ending(Place(2, 99)), fence(3, 8), None),
}


@pytest.mark.parametrize(("heard", "made", "expected"), CASES.values(), ids=CASES)
def test_a_command_is_carried_out_answered_or_too_old(
    heard: SeenCommands, made: Fence, expected: StoredAnswer | Code | None
) -> None:
    assert verdict(heard, made) == expected


def test_a_stale_command_gets_the_highest_epoch() -> None:
    with pytest.raises(SidecarError) as caught:
        judge_fence(HEARD, fence(2, 1), "d")
    assert caught.value.problem().epoch == 3


def test_a_command_under_way_is_joined_though_a_newer_one_arrived() -> None:
    assert verdict(HEARD, fence(3, 6), is_under_way=True) is None
    assert verdict(HEARD, fence(2, 6), is_under_way=True) is Code.STALE_EPOCH
    assert verdict(OVER, fence(3, 6), is_under_way=True) is None


def test_a_cancelled_command_stays_cancelled_when_the_next_one_arrives() -> None:
    assert verdict(OVER.receiving(fence(3, 12), "d"), fence(3, 8)) is Code.STALE_EPOCH
    assert OVER.ending(Place(3, 2)) == OVER


def test_a_number_that_stands_for_two_commands_is_an_error() -> None:
    for sequence in (4, 6, 7):
        assert verdict(HEARD, fence(3, sequence), "another") is Code.INVALID_REQUEST


def test_a_higher_epoch_ends_what_was_before() -> None:
    later = HEARD.at(4)

    assert (later.epoch, later.orders) == (4, ())
    assert verdict(later, fence(3, 4)) is Code.STALE_EPOCH
    assert HEARD.at(3) is HEARD.at(2) is HEARD
    assert later.answering(fence(3, 7), OK) == later


def test_only_the_last_answers_are_kept() -> None:
    heard = SeenCommands()
    for sequence in range(KEPT + 3):
        heard = heard.receiving(fence(1, sequence), "d").answering(fence(1, sequence), OK)

    assert len(heard.orders) == KEPT
    assert [verdict(heard, fence(1, sequence)) for sequence in (2, 3, KEPT + 2)] == [
        Code.STALE_EPOCH,
        OK,
        OK,
    ]


@pytest.mark.parametrize(("fleet", "pod"), [("f", "p"), ("", ""), ("f", ""), ("", "p")])
def test_the_worker_that_is_meant_is_right(fleet: str, pod: str) -> None:
    demand_addressee(fence(1, 1), fleet, pod)


@pytest.mark.parametrize(("fleet", "pod"), [("f", "q"), ("g", "p"), ("", "q"), ("g", "")])
def test_a_command_for_another_worker_is_rejected_with_both_uids(fleet: str, pod: str) -> None:
    with pytest.raises(SidecarError, match="wrong worker") as caught:
        demand_addressee(fence(1, 1), fleet, pod)
    assert caught.value.code is Code.WRONG_WORKER


IN_CHANGE = {Stage.PAUSED, Stage.LOADING, Stage.LOADED, Stage.PROVED}


@pytest.mark.parametrize("stage", Stage)
def test_a_command_without_a_fence_does_not_cross_an_operator_s_change(stage: Stage) -> None:
    demand_unled(stage, "mine", None)
    demand_unled(stage, "mine", ("mine", 3))
    demand_unled(stage, "mine", ("another trainer's", None))
    if stage not in IN_CHANGE:
        demand_unled(stage, "mine", ("theirs", 3))
        return
    with pytest.raises(SidecarError, match="theirs") as caught:
        demand_unled(stage, "mine", ("theirs", 3))
    assert caught.value.code is Code.BUSY
