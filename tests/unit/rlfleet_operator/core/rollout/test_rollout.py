"""Which rollout is active, and which version each worker must serve next."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.core.model.actions import Update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.failure_rules import stop
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.rollout.rollout import Outcome, Rollout, served
from rlfleet_operator.core.rollout.worker_goal import goal_of
from tests.workers import problem, recorded, worker, world

UNDER_WAY = Rollout(1, "step-1", "step-2", "step-2")
FAILED = replace(UNDER_WAY, outcome=Outcome.STOPPED)
COMPLETED = replace(UNDER_WAY, outcome=Outcome.COMPLETED)
BROKEN: dict[str, Any] = {"failure": problem(Code.PROOF_FAILED)}
REFUSED: dict[str, Any] = {"refusal": problem(Code.CHECKPOINT_INVALID)}


def of(proved: str, ordinal: int = 0) -> Worker:
    return worker(ordinal, proved=proved)


# --- what the fleet serves --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "status", "expected"),
    [
        ([of("a"), of("b"), of("b")], {}, "b"),
        ([of("a"), of("b")], {"serving": "a"}, "a"),
        ([of("a"), of("b")], {}, "b"),
        ([of("b"), worker(stage=Stage.DOUBT), worker(stage=Stage.CLOSED)], {}, "b"),
        ([worker(stage=Stage.CLOSED)], {}, ""),
        ([], {}, ""),
        ([worker(stage=Stage.CLOSED)], recorded("step-2", "Completed"), "step-2"),
        ([worker(stage=Stage.CLOSED)], recorded("step-2", "Reloading"), "step-1"),
        ([worker(stage=Stage.CLOSED)], recorded("step-2", "Failed"), "step-1"),
        ([worker(stage=Stage.DOUBT)], recorded("step-2", "Preparing", reason="Rollback"), "step-2"),
    ],
    ids=[
        "most workers",
        "a tie goes to what was served",
        "a tie goes to the name",
        "an idle worker has no vote",
        "nothing and nothing on record",
        "nobody",
        "no worker serves after a completed rollout",
        "no worker serves in mid rollout",
        "no worker serves after a failed rollout",
        "no worker serves in mid rollback",
    ],
)
def test_what_is_served(workers: list[Worker], status: dict[str, Any], expected: str) -> None:
    assert served(world(*workers, status=status)) == expected


# --- which rollout is under way ---------------------------------------------------------------


def test_without_a_version_in_the_spec_there_is_no_rollout() -> None:
    assert current(world(of("step-1"), weightVersion=None)) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, (1, True)),
        (recorded("step-2", "Reloading"), (1, False)),
        (recorded("step-2", "Completed"), (1, False)),
        (recorded("step-3", "Completed"), (2, True)),
        (recorded("step-3", "Reloading", id=7), (8, True)),
        (recorded("step-2", "Completed") | {"target": ""}, (2, True)),
    ],
    ids=[
        "the first",
        "on record",
        "on record and completed",
        "another one after it",
        "another one gives it up",
        "the version was taken out of the spec and came back",
    ],
)
def test_a_rollout_counts_up_with_each_change_of_the_target(
    status: dict[str, Any], expected: tuple[int, bool]
) -> None:
    found = current(world(of("step-1"), weightVersion="step-2", status=status))

    assert found is not None
    assert (found.id, found.is_new) == expected
    assert found.operation == f"rollout-{expected[0]}"
    assert found.before == "step-1"


@pytest.mark.parametrize("forged", [999_999_999, 2**63 - 1, -(2**63)])
def test_after_a_number_that_nothing_can_follow_it_counts_on_from_the_workers(forged: int) -> None:
    status = recorded("step-3", "Completed", id=forged)
    known = worker(proved="step-1", refusal=problem(Code.CHECKPOINT_INVALID))

    begun = current(world(known, status=status))

    assert begun is not None
    assert begun.is_new
    assert 0 < begun.id < 1_000


def test_a_recorded_failure_stays_one_though_the_worker_was_replaced() -> None:
    found = current(
        world(of("step-1"), weightVersion="step-2", status=recorded("step-2", "Failed"))
    )

    assert found is not None
    assert found.is_stopped


@pytest.mark.parametrize(("phase", "expected"), [("Reloading", True), ("Completed", False)])
def test_a_failure_ends_a_rollout_that_has_not_completed(phase: str, *, expected: bool) -> None:
    seen = world(
        worker(0, Stage.DOUBT, **BROKEN),
        weightVersion="step-2",
        status=recorded("step-2", phase),
    )
    found = current(seen)

    assert found is not None
    assert found.is_stopped is expected


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker(0, Stage.DOUBT, **BROKEN), of("step-1", 1)], True),
        ([worker(0, Stage.DOUBT, **BROKEN), of("step-2", 1)], False),
        ([worker(0, Stage.DOUBT, **BROKEN), worker(1, Stage.LOADING)], False),
        ([worker(0, failure=problem(Code.PAUSE_FAILED))], False),
        ([worker(0, Stage.DOUBT, failure=problem(Code.RELOAD_FAILED))], True),
        ([worker(0, Stage.DOUBT, failure=problem(Code.PROOF_FAILED, "step-3"))], False),
        ([worker(0, Stage.CLOSED, failure=problem(Code.ENGINE_UNREACHABLE))], False),
        ([worker(0, Stage.DOUBT, failure=problem(Code.PROOF_FAILED, operation="before"))], False),
        ([], False),
    ],
    ids=[
        "failed and held nowhere",
        "held on another worker",
        "another try is under way",
        "the way there failed",
        "the reload failed",
        "another version failed",
        "the engine went away",
        "it failed when it was asked for before",
        "nobody",
    ],
)
def test_a_rollout_is_stopped_when_its_version_failed_and_held_nowhere(
    workers: list[Worker], *, expected: bool
) -> None:
    found = stop(world(*workers, weightVersion="step-2"), UNDER_WAY)

    assert (found is not None) is expected


# --- the goal of one worker -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "rollout", "expected"),
    [
        (of("step-1"), UNDER_WAY, "step-2"),
        (of("step-2"), UNDER_WAY, "step-2"),
        (worker(stage=Stage.CLOSED), UNDER_WAY, "step-2"),
        (worker(stage=Stage.DOUBT), UNDER_WAY, "step-2"),
        (worker(**REFUSED), UNDER_WAY, "step-2"),
        (worker(stage=Stage.CLOSED, **REFUSED), UNDER_WAY, "step-1"),
        (worker(stage=Stage.CLOSED, **REFUSED), COMPLETED, "step-2"),
        (worker(stage=Stage.CLOSED, **REFUSED), replace(UNDER_WAY, before=""), "step-2"),
        (of("step-1"), FAILED, None),
        (worker(stage=Stage.DOUBT, **BROKEN), FAILED, None),
        (worker(stage=Stage.CLOSED), FAILED, "step-1"),
        (worker(stage=Stage.CLOSED), replace(FAILED, before=""), None),
    ],
    ids=[
        "a serving worker goes to the target",
        "and stays there",
        "a late joiner goes to the target first",
        "a good version leads an engine out of doubt",
        "a serving worker waits for a rejected checkpoint",
        "an idle worker does not",
        "unless the target was proved before",
        "or nothing was served before",
        "no other worker tries a failed version",
        "a failed worker is left as it is",
        "a late joiner of a failed rollout falls back",
        "if there is anything to fall back to",
    ],
)
def test_the_goal_of_a_worker_in_a_rollout(
    subject: Worker, rollout: Rollout, expected: str | None
) -> None:
    seen = world(subject, weightVersion="step-2", status=recorded("step-2", "Preparing"))

    assert goal_of(subject, seen, rollout) == expected


def test_a_worker_that_prepared_the_older_version_counts_as_rejecting_by_the_recorded_phase() -> (
    None
):
    """Preparing the older version makes the sidecar forget why the newer one was refused."""
    subject = worker(stage=Stage.CLOSED, prepared="step-1")
    refused = world(subject, weightVersion="step-2", status=recorded("step-2", "Refused"))
    preparing = world(subject, weightVersion="step-2", status=recorded("step-2", "Preparing"))

    assert goal_of(subject, refused, UNDER_WAY) == "step-1"
    assert goal_of(subject, preparing, UNDER_WAY) == "step-2"


def joining(seen: World) -> str | None:
    return goal_of(seen.workers[0], seen, None)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker(0, Stage.CLOSED), of("step-5", 1)], "step-5"),
        ([worker(0, Stage.CLOSED)], "base"),
        ([worker(0, Stage.DOUBT), of("step-5", 1)], "step-5"),
        ([worker(0, Stage.DOUBT), worker(1, Stage.DOUBT)], None),
        ([of("step-4"), of("step-5", 1), of("step-5", 2)], None),
        ([worker(0, Stage.LOADING), of("step-5", 1)], None),
        (
            [
                worker(
                    0,
                    Stage.CLOSED,
                    running=Running(verb=Verb.PAUSE, operation="mine", version="step-6"),
                )
            ],
            None,
        ),
    ],
    ids=[
        "a late joiner follows most",
        "the first serves the base model",
        "one in doubt follows most",
        "all in doubt are their trainer's, and get no older weights",
        "a serving worker is left alone",
        "a changing worker is left alone",
        "so is one that is about to change",
    ],
)
def test_while_a_trainer_drives_only_late_joiners_are_brought_along(
    workers: list[Worker], expected: str | None
) -> None:
    assert joining(world(*workers, weightVersion=None)) == expected


# --- which worker is taken out next -------------------------------------------------------------


def test_no_worker_is_taken_out_while_a_failed_one_has_not_reported_why() -> None:
    """Its stage says so up to seconds before its failure does, and its mark is gone by then."""
    running = Running(verb=Verb.RELOAD, operation="rollout-1", version="step-2")
    asked: dict[str, Any] = {
        "weightVersion": "step-2",
        "status": recorded("step-2", "Reloading"),
    }
    ready = worker(1, prepared="step-2")
    silent = worker(0, Stage.DOUBT, prepared="step-2", running=running)

    assert _updated(world(silent, ready, **asked)) == []
    assert _updated(world(worker(0, proved="step-2"), ready, **asked)) == ["qwen-1"]


def _updated(seen: World) -> list[str]:
    return [a.worker for a in plan(seen).actions if isinstance(a, Update)]
