"""Which number a command gets, and when it is the one before."""

from typing import Any

import pytest

from rlfleet_contract.models import PrepareRequest, UpdateRequest, Verb
from rlfleet_operator.core.actions import Prepare, Resume, Update
from rlfleet_operator.wire import Numbers, Taken, body_of
from tests import fleets

TAKEN = Taken("fleet-uid", 3)
ROLLOUT = fleets.fleet().spec.rollout


def prepare(**fields: Any) -> PrepareRequest:
    return PrepareRequest(**({"operation": "rollout-1", "version": "step-1"} | fields))


def test_a_fence_says_who_sends_what_to_whom() -> None:
    made = Numbers().fenced(prepare(), TAKEN, "pod-uid", None)

    assert made.fence is not None
    assert made.fence.model_dump() == {
        "fleet": "fleet-uid",
        "pod": "pod-uid",
        "epoch": 3,
        "sequence": 1,
    }
    assert made.model_copy(update={"fence": None}) == prepare()


def test_each_command_gets_a_number_of_its_own_whichever_worker_it_goes_to() -> None:
    numbers = Numbers()
    made = [numbers.fenced(prepare(), TAKEN, pod, None) for pod in ("p", "q", "p")]

    assert [one.fence and one.fence.sequence for one in made] == [1, 2, 3]


def test_a_command_whose_answer_was_lost_is_sent_as_it_was() -> None:
    numbers = Numbers()
    lost = numbers.fenced(prepare(), TAKEN, "p", None)

    assert numbers.fenced(prepare(), TAKEN, "p", lost) is lost


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (prepare(version="step-2"), TAKEN),
        (prepare(timeout_s=7), TAKEN),
        (UpdateRequest(operation="rollout-1", version="step-1"), TAKEN),
        (prepare(), Taken("fleet-uid", 4)),
    ],
    ids=["another version", "other words", "another verb", "another epoch"],
)
def test_anything_else_is_a_new_command(body: Any, taken: Taken) -> None:
    numbers = Numbers()
    lost = numbers.fenced(prepare(), TAKEN, "p", None)

    made = numbers.fenced(body, taken, "p", lost)

    assert made.fence is not None
    assert (made.fence.epoch, made.fence.sequence) == (taken.epoch, 2)


def test_each_action_has_its_body() -> None:
    bodies = [
        body_of(Prepare("qwen-0", "step-1", "rollout-1"), ROLLOUT),
        body_of(Update("qwen-0", "step-1", "rollout-1", None, Verb.VERIFY), ROLLOUT),
        body_of(Resume("qwen-0", "step-1", "rollout-1"), ROLLOUT),
    ]

    assert [type(body).__name__ for body in bodies] == [
        "PrepareRequest",
        "UpdateRequest",
        "ResumeRequest",
    ]
    assert {(body.operation, body.version) for body in bodies} == {("rollout-1", "step-1")}
    assert getattr(bodies[1], "through", None) is Verb.VERIFY
