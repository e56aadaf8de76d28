"""Workers that a change left paused: none stays paused while an operator runs.

The operator's heartbeats extend the TTL, so only a command resumes such a worker.
"""

from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Action, Prepare, Resume, Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from tests.workers import problem, recorded, worker, world

LATE: dict[str, Any] = {"prepared": "step-1", "paused_s": 1.0}
"""It was on its way to step-1 and has proved nothing when step-2 is asked for."""
REFUSED: dict[str, Any] = {"refusal": problem(Code.CHECKPOINT_INVALID)}


def asking(*seen: Any, **rollout: Any) -> World:
    status = recorded("step-2", "Preparing")
    return world(*seen, weightVersion="step-2", rollout=rollout, status=status)


def commands(seen: World) -> list[Action]:
    return [a for a in plan(seen).actions if isinstance(a, Prepare | Update | Resume)]


def whose(found: list[Action], name: str) -> list[Action]:
    return [a for a in found if isinstance(a, Prepare | Update | Resume) and a.worker == name]


@pytest.mark.parametrize("strategy", ["Rolling", "Canary", "Barrier"])
def test_a_paused_worker_that_has_proved_nothing_prepares(strategy: str) -> None:
    seen = asking(worker(0, prepared="step-2"), worker(1, Stage.PAUSED, **LATE), strategy=strategy)

    assert whose(commands(seen), "qwen-1") == [
        Prepare("qwen-1", "step-2", "rollout-1", waits=strategy == "Barrier")
    ]


@pytest.mark.parametrize("strategy", ["Rolling", "Barrier"])
def test_a_paused_worker_that_has_proved_nothing_falls_back(strategy: str) -> None:
    paused = worker(1, Stage.PAUSED, **({"prepared": None} | REFUSED))
    ready = worker(1, Stage.PAUSED, **({"prepared": "step-1"} | REFUSED))

    before = whose(commands(asking(worker(0), paused, strategy=strategy)), "qwen-1")
    after = whose(commands(asking(worker(0), ready, strategy=strategy)), "qwen-1")

    assert [(type(a), getattr(a, "version", "")) for a in (*before, *after)] == [
        (Prepare, "step-1"),
        (Update, "step-1"),
    ]


@pytest.mark.parametrize("prepared", ["step-1", "step-2"])
def test_a_paused_worker_that_has_proved_nothing_serves_the_old_version_while_a_barrier_is_held(
    prepared: str,
) -> None:
    late = worker(1, Stage.PAUSED, prepared=prepared, paused_s=1.0)
    others = worker(0, prepared="step-2"), late
    held = asking(*others, strategy="Barrier", paused=True)
    begun = worker(0, Stage.LOADED, prepared="step-2", installed="step-2", proved=None)

    found = whose(commands(held), "qwen-1")
    after = whose(commands(asking(begun, late, strategy="Barrier", paused=True)), "qwen-1")

    expected = Update if prepared == "step-1" else Prepare
    assert [(type(a), getattr(a, "version", "")) for a in found] == [(expected, "step-1")]
    assert {getattr(a, "version", "") for a in after} <= {"step-2"}


def test_a_paused_worker_that_can_serve_resumes_and_does_not_prepare() -> None:
    seen = asking(worker(0), worker(1, Stage.PAUSED, proved="step-1", paused_s=1.0))

    assert whose(commands(seen), "qwen-1") == [Resume("qwen-1", "step-1", "rollout-1")]


def test_a_worker_paused_for_another_version_does_not_keep_a_failed_one() -> None:
    failed = worker(0, Stage.DOUBT, failure=problem(Code.PROOF_FAILED))
    left = worker(1, Stage.PAUSED, **LATE)
    trying = worker(1, Stage.PAUSED, prepared="step-2", proved="step-1", paused_s=1.0)

    told = [plan(asking(failed, one, onFailure="Rollback")).rollout for one in (left, trying)]

    assert [r.to for r in told if r] == ["step-1", "step-2"]


@pytest.mark.parametrize("operation", ["catch-up", "rollout-1"])
def test_a_late_joiner_that_failed_to_resume_resumes_while_the_target_is_only_previewed(
    operation: str,
) -> None:
    status = recorded("step-1", "Superseded", withdrawn=True)
    late = worker(1, Stage.PROVED, proved="step-1", operation=operation)
    seen = world(worker(0), late, weightVersion="step-2", rollout={"dryRun": True}, status=status)

    assert commands(seen) == [Resume("qwen-1", "step-1", "rollout-1")]


def test_a_late_joiner_resumes_while_the_first_target_of_its_fleet_is_only_previewed() -> None:
    late = worker(1, Stage.PROVED, proved="step-1", operation="catch-up")
    seen = world(worker(0), late, weightVersion="step-2", rollout={"dryRun": True})

    assert commands(seen) == [Resume("qwen-1", "step-1", "catch-up")]


@pytest.mark.parametrize("operation", ["catch-up", "rollout-1"])
def test_a_late_joiner_that_failed_to_load_loads_while_the_target_is_only_previewed(
    operation: str,
) -> None:
    status = recorded("step-1", "Superseded", withdrawn=True)
    late = worker(1, Stage.PAUSED, operation=operation, **LATE)
    seen = world(worker(0), late, weightVersion="step-2", rollout={"dryRun": True}, status=status)

    assert [(type(a), getattr(a, "version", "")) for a in commands(seen)] == [(Update, "step-1")]


def test_a_worker_that_a_trainer_paused_before_its_first_load_stays_paused() -> None:
    status = recorded("step-1", "Superseded", withdrawn=True)
    paused = worker(1, Stage.PAUSED, operation="the-trainers", **LATE)
    seen = world(worker(0), paused, weightVersion="step-2", rollout={"dryRun": True}, status=status)

    assert commands(seen) == []


def test_a_worker_that_a_trainer_left_behind_its_gate_stays_there() -> None:
    status = recorded("step-1", "Superseded", withdrawn=True)
    left = worker(1, Stage.PROVED, proved="step-1")
    seen = world(worker(0), left, weightVersion="step-2", rollout={"dryRun": True}, status=status)

    assert commands(seen) == []
