"""The strategy Barrier: all pause, all load and prove, all resume."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.core.model.actions import Action, Prepare, Resume, Update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.crd.fleet_status import TrainerPause
from tests.workers import problem, recorded, worker, world

READY: dict[str, Any] = {"prepared": "step-2"}
PROVED: dict[str, Any] = {"prepared": "step-2", "installed": "step-2", "proved": "step-2"}
PAUSED: dict[str, Any] = {"prepared": "step-2", "proved": "step-1", "paused_s": 1.0}


def barrier(*workers: Worker, phase: str = "Preparing", **rollout: Any) -> World:
    rules = {"strategy": "Barrier"} | rollout
    return world(*workers, weightVersion="step-2", rollout=rules, status=recorded("step-2", phase))


def commands(seen: World) -> list[Action]:
    return [a for a in plan(seen).actions if isinstance(a, Prepare | Update | Resume)]


def updates(seen: World) -> dict[str, Verb]:
    return {a.worker: a.through for a in commands(seen) if isinstance(a, Update)}


def test_no_worker_pauses_before_all_are_prepared() -> None:
    seen = barrier(worker(0, **READY), worker(1))

    assert commands(seen) == [Prepare("qwen-1", "step-2", "rollout-1")]


def test_all_pause_whatever_the_budget_says() -> None:
    seen = barrier(worker(0, **READY), worker(1, **READY), maxUnavailable=1)

    assert updates(seen) == {"qwen-0": Verb.PAUSE, "qwen-1": Verb.PAUSE}


def test_no_worker_loads_before_all_have_paused() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **PAUSED), worker(1, **READY))

    assert updates(seen) == {"qwen-1": Verb.PAUSE}


def test_a_pausing_worker_has_not_paused() -> None:
    """The sidecar writes Paused down before it asks the engine to pause."""
    running = Running(verb=Verb.PAUSE, operation="rollout-1", version="step-2")
    seen = barrier(
        worker(0, Stage.PAUSED, **PAUSED), worker(1, Stage.PAUSED, running=running, **PAUSED)
    )

    assert commands(seen) == []


def test_all_load_once_all_have_paused() -> None:
    seen = barrier(*(worker(i, Stage.PAUSED, **PAUSED) for i in range(2)))

    assert updates(seen) == {"qwen-0": Verb.VERIFY, "qwen-1": Verb.VERIFY}


def test_an_idle_worker_that_loads_the_old_version_begins_no_barrier() -> None:
    """In a hold, a worker that restarted loads the old version in the rollout's operation."""
    running = Running(verb=Verb.RELOAD, operation="rollout-1", version="step-1")
    restarted = worker(0, Stage.LOADING, prepared="step-1", paused_s=1.0, running=running)

    for is_paused in (True, False):
        seen = barrier(restarted, worker(1, **READY), paused=is_paused)
        assert updates(seen) == {}


def test_an_idle_worker_that_fails_to_pause_for_the_old_version_stops_no_barrier() -> None:
    failure = problem(Code.PAUSE_FAILED, version="step-1")
    restarted = worker(0, Stage.CLOSED, prepared="step-1", failure=failure)

    rollout = plan(barrier(restarted, worker(1, **READY), paused=True)).rollout

    assert rollout is not None
    assert rollout.is_active


def test_no_gate_opens_before_all_have_proved() -> None:
    seen = barrier(worker(0, Stage.PROVED, **PROVED), worker(1, Stage.PAUSED, **PAUSED))

    assert updates(seen) == {"qwen-1": Verb.VERIFY}


def test_all_gates_open_once_all_have_proved() -> None:
    seen = barrier(*(worker(i, Stage.PROVED, **PROVED) for i in range(2)))

    assert updates(seen) == {"qwen-0": Verb.RESUME, "qwen-1": Verb.RESUME}


def test_idle_workers_load_together_with_the_others() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **PAUSED), worker(1, Stage.CLOSED, **READY))

    assert updates(seen) == {"qwen-0": Verb.VERIFY, "qwen-1": Verb.VERIFY}


def test_the_others_do_not_wait_for_one_that_is_down() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **PAUSED), worker(1, Stage.DOWN))

    assert updates(seen) == {"qwen-0": Verb.VERIFY}


def test_no_worker_stays_paused_while_another_prepares() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **PAUSED), worker(1))

    assert commands(seen) == [
        Prepare("qwen-1", "step-2", "rollout-1"),
        Resume("qwen-0", "step-1", "rollout-1"),
    ]


def test_a_held_rollout_lets_paused_workers_go() -> None:
    seen = barrier(*(worker(i, Stage.PAUSED, **PAUSED) for i in range(2)), paused=True)

    assert commands(seen) == [Resume(f"qwen-{i}", "step-1", "rollout-1") for i in range(2)]


def test_a_barrier_that_has_begun_to_load_ignores_rollout_paused() -> None:
    seen = barrier(
        worker(0, Stage.PROVED, **PROVED), worker(1, Stage.PAUSED, **PAUSED), paused=True
    )

    assert updates(seen) == {"qwen-1": Verb.VERIFY}


def test_a_pause_that_takes_too_long_is_given_up_and_all_serve_the_old_version() -> None:
    late = worker(0, Stage.PAUSED, **(PAUSED | {"paused_s": 66.0}))
    seen = barrier(late, worker(1, **READY))

    step = plan(seen)

    assert step.rollout is not None
    assert step.rollout.is_stopped
    assert "not paused: qwen-1" in step.rollout.why
    assert commands(seen) == [], "nothing is done before it is on record"
    assert commands(barrier(late, worker(1, **READY), phase="Failed")) == [
        Resume("qwen-0", "step-1", "rollout-1")
    ]


def test_a_worker_that_cannot_pause_ends_it_for_all() -> None:
    failed = worker(1, **READY, failure=problem(Code.PAUSE_FAILED))
    step = plan(barrier(worker(0, Stage.PAUSED, **PAUSED), failed))

    assert step.rollout is not None
    assert step.rollout.is_stopped
    assert "qwen-1 did not pause" in step.rollout.why


def after_a_pause(*workers: Worker) -> World:
    """Return a Barrier that began before every worker had resumed from a trainer's pause."""
    seen = barrier(*workers)
    ended = TrainerPause(
        operation="fleet-pause-1",
        asked_at="2023-11-14T22:00:00Z",
        until="2023-11-14T22:10:00Z",
        ttl_seconds=600,
        ending=True,
    )
    status = seen.fleet.status.model_copy(update={"trainer_pause": ended})
    return replace(seen, fleet=replace(seen.fleet, status=status))


def test_a_worker_that_cannot_pause_ends_it_also_while_a_trainer_s_pause_ends() -> None:
    """Else the others would wait behind closed gates for as long as it cannot."""
    failed = worker(1, **READY, failure=problem(Code.PAUSE_FAILED))
    step = plan(after_a_pause(worker(0, Stage.PAUSED, **PAUSED), failed))

    assert step.rollout is not None
    assert step.rollout.is_stopped
    assert "qwen-1 did not pause" in step.rollout.why


def test_how_long_a_trainer_had_paused_a_worker_does_not_count_for_the_fleet_s_pause() -> None:
    long_paused = worker(0, Stage.PAUSED, **PAUSED | {"paused_s": 900.0})

    step = plan(after_a_pause(long_paused, worker(1, **READY)))

    assert step.rollout is not None
    assert step.rollout.is_active


def test_one_that_proved_a_version_which_was_given_up_loads_the_old_one_behind_its_gate() -> None:
    """Its proof and the failed pause of the other may reach the operator in either order."""
    failed = problem(Code.PAUSE_FAILED, version="step-2", operation="rollout-1")
    other = worker(1, failure=failed, **READY)
    first = worker(0, Stage.PROVED, **PROVED)
    prepared = worker(0, Stage.PROVED, **PROVED | {"prepared": "step-1"})
    preparing = replace(first, calling=Verb.PREPARE, calling_for=("step-1", "rollout-1"))

    assert commands(barrier(first, other, phase="Failed")) == [
        Prepare("qwen-0", "step-1", "rollout-1", waits=False)
    ]
    assert commands(barrier(preparing, other, phase="Failed")) == []
    assert updates(barrier(prepared, other, phase="Failed")) == {"qwen-0": Verb.RESUME}


def test_one_that_fails_its_proof_is_left_out_and_the_others_serve() -> None:
    failed = worker(1, Stage.DOUBT, **READY, failure=problem(Code.PROOF_FAILED))
    seen = barrier(worker(0, Stage.PROVED, **PROVED), failed)

    assert updates(seen) == {"qwen-0": Verb.RESUME}


def test_with_rollback_no_gate_opens_on_a_version_that_failed() -> None:
    failed = worker(1, Stage.DOUBT, **READY, failure=problem(Code.PROOF_FAILED))
    step = plan(barrier(worker(0, Stage.PROVED, **PROVED), failed, onFailure="Rollback"))

    assert step.rollout is not None
    assert (step.rollout.id, step.rollout.to, step.rollout.is_new) == (2, "step-1", True)
    assert not any(isinstance(a, Update | Resume) for a in step.actions)


@pytest.mark.parametrize("silence", [None, "sidecar does not answer"])
def test_with_rollback_an_unreachable_worker_opens_no_gate_and_delays_nothing_for_long(
    silence: str | None,
) -> None:
    """The worker that is waited for may prove the version, or may never answer again."""
    failed = worker(1, Stage.DOUBT, **READY, failure=problem(Code.PROOF_FAILED))
    loading = replace(
        worker(2, Stage.LOADING, prepared="step-2"),
        calling=Verb.RELOAD,
        reachable=False,
        silence=silence,
    )
    step = plan(barrier(worker(0, Stage.PROVED, **PROVED), failed, loading, onFailure="Rollback"))

    assert step.rollout is not None
    assert step.rollout.to == ("step-2" if silence is None else "step-1")
    assert not any(isinstance(a, Update | Resume) for a in step.actions)


def test_with_rollback_one_that_waits_too_long_is_tried_before_a_gate_opens() -> None:
    """Else a worker without commands would keep the version."""
    late = PAUSED | {"paused_s": 3600.0}
    failed = worker(1, Stage.DOUBT, **READY, failure=problem(Code.PROOF_FAILED))
    proved, paused = worker(0, Stage.PROVED, **PROVED), worker(2, Stage.PAUSED, **late)

    assert updates(barrier(proved, failed, paused, onFailure="Rollback")) == {"qwen-2": Verb.VERIFY}


def test_a_late_joiner_waits_while_the_rollout_is_paused() -> None:
    through = {"proved": "step-2", **READY}
    late = worker(1, **READY)

    assert updates(barrier(worker(0, **through), late)) == {"qwen-1": Verb.RESUME}
    assert updates(barrier(worker(0, **through), late, paused=True)) == {}


def test_a_newer_version_waits_for_a_barrier_that_has_begun_to_load() -> None:
    loading = worker(
        0,
        Stage.LOADING,
        running=Running(verb=Verb.RELOAD, operation="rollout-1", version="step-2"),
        **READY,
    )
    begun = world(
        loading,
        worker(1, Stage.PAUSED, **PAUSED),
        weightVersion="step-3",
        rollout={"strategy": "Barrier"},
        status=recorded("step-2", "Reloading"),
    )
    gathering = world(
        worker(0, Stage.PAUSED, **PAUSED),
        worker(1, **READY),
        weightVersion="step-3",
        rollout={"strategy": "Barrier"},
        status=recorded("step-2", "Pausing"),
    )

    assert [r.to for r in (plan(begun).rollout, plan(gathering).rollout) if r] == [
        "step-2",
        "step-3",
    ]


def superseded(*workers: Worker) -> World:
    """Return a fleet that was asked for step-3 while its Barrier to step-2 was under way."""
    status = recorded("step-2", "Pausing")
    rules = {"strategy": "Barrier"}
    return world(*workers, weightVersion="step-3", rollout=rules, status=status)


def test_a_newer_version_waits_for_a_command_that_may_be_the_one_that_loads() -> None:
    paused = [worker(i, Stage.PAUSED, **PAUSED) for i in range(2)]
    asked = replace(paused[0], calling=Verb.RELOAD, calling_for=("step-2", "rollout-1"))

    told = [plan(superseded(asked, paused[1])).rollout, plan(superseded(*paused)).rollout]

    assert [r.to for r in told if r] == ["step-2", "step-3"]


def test_a_worker_with_a_superseded_version_serves_it_while_the_next_is_prepared() -> None:
    """Found by the model check: they waited behind closed gates for a version that was refused."""
    proved = [worker(i, Stage.PROVED, **PROVED) for i in range(2)]
    seen = world(
        *proved,
        weightVersion="step-3",
        rollout={"strategy": "Barrier"},
        status=recorded("step-3", "Preparing"),
    )

    assert [a for a in commands(seen) if isinstance(a, Resume)] == [
        Resume(f"qwen-{i}", "step-2", "rollout-1") for i in range(2)
    ]


def test_a_worker_with_the_version_that_is_rolled_back_stays_closed() -> None:
    rolled_back = recorded("step-1", "Preparing", reason="Rollback", asked="step-2")
    rolled_back["rollout"] |= {"from": "step-2"}
    seen = world(
        worker(0, Stage.PROVED, **PROVED),
        worker(1, Stage.DOUBT),
        weightVersion="step-2",
        rollout={"strategy": "Barrier", "onFailure": "Rollback"},
        status=rolled_back | {"target": "step-2"},
    )

    assert [type(a) for a in commands(seen)] == [Prepare, Prepare]


def test_an_idle_worker_falls_back_when_the_version_is_rejected() -> None:
    """Found by the model check: in doubt, it was asked for the refused version for ever."""
    refused = {"refusal": problem(Code.CHECKPOINT_INVALID), "prepared": "step-1"}
    seen = barrier(worker(0), worker(1, Stage.DOUBT, **refused))

    assert commands(seen) == [
        Update("qwen-1", "step-1", "rollout-1", None),
        Prepare("qwen-0", "step-2", "rollout-1"),
    ]


def test_a_late_joiner_of_a_barrier_that_is_through_comes_alone() -> None:
    served = worker(0, **(PROVED | {"prepared": "step-2"}))
    seen = barrier(served, worker(1, Stage.CLOSED, **READY))

    assert updates(seen) == {"qwen-1": Verb.RESUME}


FORGOT: dict[str, Any] = {"proved": "step-1", "paused_s": 1.0}
"""Paused, and its sidecar was restarted: what is read in place is no longer prepared."""


def test_one_that_forgot_what_it_prepared_prepares_it_again_behind_its_gate() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **FORGOT), worker(1, Stage.PROVED, **PROVED))

    assert commands(seen) == [Prepare("qwen-0", "step-2", "rollout-1")]


def test_one_that_comes_late_prepares_behind_its_gate_when_the_others_are_through() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **FORGOT), worker(1, **PROVED))

    assert commands(seen) == [Prepare("qwen-0", "step-2", "rollout-1")]


def test_before_the_first_load_a_worker_that_lost_its_copy_serves_while_it_prepares() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **FORGOT), worker(1, Stage.PAUSED, **PAUSED))

    assert commands(seen) == [Resume(f"qwen-{i}", "step-1", "rollout-1") for i in range(2)]


def test_a_worker_that_has_proved_the_version_opens_without_a_prepare() -> None:
    proved = {"installed": "step-2", "proved": "step-2"}
    seen = barrier(*(worker(i, Stage.PROVED, **proved) for i in range(2)))

    assert updates(seen) == {"qwen-0": Verb.RESUME, "qwen-1": Verb.RESUME}
    assert len(commands(seen)) == 2


def test_one_that_was_paused_for_a_version_that_is_taken_back_opens_at_once() -> None:
    status = recorded("step-1", "Preparing")
    rules = {"strategy": "Barrier"}
    seen = world(
        worker(0, Stage.PAUSED, **PAUSED), worker(1, **READY), rollout=rules, status=status
    )

    assert updates(seen) == {"qwen-0": Verb.RESUME}


def test_one_that_has_only_to_open_is_not_led_with_those_that_load() -> None:
    there = worker(0, Stage.PAUSED, **(PAUSED | {"proved": "step-2"}))
    seen = barrier(there, worker(1, Stage.CLOSED, **READY))

    assert updates(seen) == {"qwen-0": Verb.RESUME}


# --- once a worker has begun to load -------------------------------------------------------------

STUCK: dict[str, Any] = PAUSED | {"failure": problem(Code.PAUSE_FAILED)}


def test_a_worker_that_resumed_changes_before_a_gate_opens() -> None:
    again = worker(0, **READY, failure=problem(Code.FLUSH_FAILED))
    seen = barrier(again, worker(1, Stage.PROVED, **PROVED))

    assert updates(seen) == {"qwen-0": Verb.VERIFY}


def test_the_wait_for_a_worker_that_cannot_change_is_at_most_a_change_s_timeout() -> None:
    again = worker(0, **READY, failure=problem(Code.FLUSH_FAILED))
    late = worker(1, Stage.PROVED, **PROVED, paused_s=751.0)

    assert updates(barrier(again, late)) == {"qwen-0": Verb.RESUME, "qwen-1": Verb.RESUME}


def test_how_long_one_has_been_in_doubt_says_nothing_of_those_that_wait_now() -> None:
    again = worker(0, **READY, failure=problem(Code.FLUSH_FAILED))
    proved = worker(1, Stage.PROVED, **PROVED, paused_s=1.0)
    doubted = worker(2, Stage.DOUBT, **READY, paused_s=3600.0)

    assert updates(barrier(again, proved, doubted))["qwen-0"] is Verb.VERIFY


def test_a_stuck_worker_is_retried_and_not_waited_for() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **STUCK), worker(1, Stage.PROVED, **PROVED))
    busy = replace(seen.workers[0], calling=Verb.RELOAD)
    loading = worker(1, Stage.LOADED, prepared="step-2", installed="step-2")

    assert updates(seen) == {"qwen-0": Verb.RESUME, "qwen-1": Verb.RESUME}
    assert updates(barrier(busy, worker(1, Stage.PROVED, **PROVED))) == {}
    assert updates(barrier(seen.workers[0], loading)) == {
        "qwen-0": Verb.VERIFY,
        "qwen-1": Verb.VERIFY,
    }


def test_a_worker_that_now_rejects_the_version_is_waited_for_only_if_it_serves() -> None:
    refusal = problem(Code.CHECKPOINT_INVALID)
    proved = worker(1, Stage.PROVED, **PROVED)
    paused = worker(0, Stage.PAUSED, **FORGOT, refusal=refusal)

    assert updates(barrier(paused, proved)) == {"qwen-1": Verb.RESUME}
    assert updates(barrier(worker(0, refusal=refusal), proved)) == {}


def test_a_stuck_worker_does_not_stop_the_rollout_of_the_others() -> None:
    seen = barrier(worker(0, Stage.PAUSED, **STUCK), worker(1, **PROVED))
    step = plan(seen)

    assert step.rollout is not None
    assert step.rollout.is_active
    assert updates(seen) == {"qwen-0": Verb.RESUME}


def test_a_stuck_worker_does_not_keep_a_version_that_failed_on_all_others() -> None:
    failed = worker(1, Stage.DOUBT, **READY, failure=problem(Code.PROOF_FAILED))
    seen = barrier(worker(0, Stage.PAUSED, **STUCK), failed, onFailure="Rollback")
    step = plan(seen)

    assert step.rollout is not None
    assert (step.rollout.to, step.rollout.is_new) == ("step-1", True)


def test_a_newer_version_waits_until_a_worker_that_resumed_has_changed() -> None:
    proved = worker(1, Stage.PROVED, **PROVED)
    again = worker(0, **READY, failure=problem(Code.FLUSH_FAILED))
    stuck = worker(0, Stage.PAUSED, **STUCK)

    told = [plan(superseded(one, proved)).rollout for one in (again, stuck)]

    assert [r.to for r in told if r] == ["step-2", "step-3"]


# --- a version that is no longer requested --------------------------------------------------------


def unasked(*workers: Worker) -> World:
    rules = {"strategy": "Barrier"}
    return world(
        *workers, weightVersion=None, rollout=rules, status=recorded("step-2", "Reloading")
    )


def test_a_worker_that_waits_for_a_cancelled_version_resumes() -> None:
    ours = {"operation": "rollout-1"}
    seen = unasked(
        worker(0, Stage.PAUSED, **PAUSED, **ours), worker(1, Stage.PROVED, **PROVED, **ours)
    )

    assert commands(seen) == [
        Resume("qwen-0", "step-1", "rollout-1"),
        Resume("qwen-1", "step-2", "rollout-1"),
    ]


def test_a_worker_that_waits_for_an_earlier_cancelled_version_resumes() -> None:
    seen = unasked(worker(0, Stage.PAUSED, **PAUSED, operation="rollout-0"))

    assert commands(seen) == [Resume("qwen-0", "step-1", "rollout-1")]


def test_a_worker_that_a_trainer_paused_at_its_sidecar_stays_paused() -> None:
    others = {"operation": "catch-up"}
    seen = unasked(worker(0, Stage.PAUSED, **PAUSED), worker(1, Stage.PROVED, **PROVED, **others))

    assert commands(seen) == []
