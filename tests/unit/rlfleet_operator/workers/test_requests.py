"""Which number a command gets, and which epoch a driver."""

from typing import Any

import pytest

from rlfleet_contract.worker.commands import PrepareRequest, Verb
from rlfleet_contract.worker.fence import MAX_EPOCH
from rlfleet_operator.core.model.actions import Prepare, Resume, Update
from rlfleet_operator.errors import NotLeading
from rlfleet_operator.workers.requests import CommandNumbers, DrivenFleet, epoch_for
from tests import fleets

TAKEN = DrivenFleet("fleet-uid", 3)
ROLLOUT = fleets.fleet().spec.rollout


def prepare(**fields: Any) -> PrepareRequest:
    return PrepareRequest(**({"operation": "rollout-1", "version": "step-1"} | fields))


@pytest.mark.parametrize(
    ("seen", "taken", "heard", "epoch"),
    [
        (2, None, 0, 3),
        (2, None, 9, 10),
        (2, DrivenFleet("another", 2), 0, 3),
        (3, DrivenFleet("f-1", 3), 0, 3),
        (2, DrivenFleet("f-1", 3), 0, 3),
        (3, DrivenFleet("f-1", 3), 9, 10),
        (MAX_EPOCH, None, 0, 1),
        (MAX_EPOCH, None, 9, 10),
        (MAX_EPOCH, DrivenFleet("f-1", 3), 0, 3),
    ],
    ids=[
        "a new driver",
        "a new driver whose workers know more",
        "another fleet of that name",
        "at rest",
        "an old look",
        "workers know more than status",
        "a forged number that leaves no room",
        "such a number, and workers that know the last",
        "such a number under a driver",
    ],
)
def test_an_epoch_is_above_all_that_came_before(
    seen: int, taken: DrivenFleet | None, heard: int, epoch: int
) -> None:
    assert epoch_for(fleets.fleet(status={"epoch": seen}), taken, heard) == epoch


def test_a_driver_that_observes_a_later_one_ends() -> None:
    with pytest.raises(NotLeading, match="status has epoch 4 of a later driver"):
        epoch_for(fleets.fleet(status={"epoch": 4}), DrivenFleet("f-1", 3), 9)


def test_a_fence_names_sender_command_and_recipient() -> None:
    made = CommandNumbers().fenced(prepare(), TAKEN, "pod-uid")

    assert made.fence is not None
    assert made.fence.model_dump() == {
        "fleet": "fleet-uid",
        "pod": "pod-uid",
        "epoch": 3,
        "sequence": 1,
    }
    assert made.model_copy(update={"fence": None}) == prepare()


def test_each_command_gets_a_number_of_its_own_whichever_worker_it_goes_to() -> None:
    numbers = CommandNumbers()
    made = [numbers.fenced(prepare(), TAKEN, pod) for pod in ("p", "q", "p")]

    assert [one.fence and one.fence.sequence for one in made] == [1, 2, 3]


def test_each_action_has_its_body() -> None:
    bodies = [
        Prepare("qwen-0", "step-1", "rollout-1").request(ROLLOUT),
        Update("qwen-0", "step-1", "rollout-1", None, Verb.VERIFY).request(ROLLOUT),
        Resume("qwen-0", "step-1", "rollout-1").request(ROLLOUT),
    ]

    assert [type(body).__name__ for body in bodies] == [
        "PrepareRequest",
        "UpdateRequest",
        "ResumeRequest",
    ]
    assert {(body.operation, body.version) for body in bodies} == {("rollout-1", "step-1")}
    assert getattr(bodies[1], "through", None) is Verb.VERIFY
