"""What status says while something is wrong: short in the column, whole in the conditions."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.pod import pod_from
from rlfleet_operator.core.model.worker_phase import remembered
from rlfleet_operator.core.model.world import World, time_of
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.status import events
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.core.timers import due_in_s
from rlfleet_operator.crd.fleet_status import Condition, FleetStatus, TrainerPause
from tests import fleets, workers
from tests.workers import problem, recorded, worker

BY_HAND = {"weightVersion": None}


def status_for(seen: World) -> FleetStatus:
    return fleets.readable(status_of(seen, current(seen)))


def condition(seen: World, kind: str) -> Condition | None:
    return next((c for c in status_for(seen).conditions if c.type == kind), None)


def refusing() -> World:
    """Return a fleet whose next version is refused by every worker."""
    refusal = problem(Code.CHECKPOINT_INVALID)
    found = [worker(n, refusal=refusal) for n in range(2)]
    return workers.world(*found, weightVersion="step-2", status=recorded("step-2", "Preparing"))


def test_a_fleet_that_is_behind_and_stalled_does_not_advise_to_wait() -> None:
    seen = refusing()

    stalled, synced = condition(seen, "Stalled"), condition(seen, "WeightsSynced")

    assert stalled is not None
    assert synced is not None
    assert (synced.status, synced.reason) == ("False", stalled.reason)


def restarting(stage: Stage, failure: Problem | None = None, **fields: Any) -> World:
    known = worker(0, stage, failure=failure)
    assert known.pod is not None
    pod = replace(known.pod, **fields)
    return workers.world(replace(known, pod=pod), worker(1))


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (
            restarting(Stage.DOWN, engine_restarts=3, engine_exit="137, OOMKilled"),
            (
                "engine restarting (restart 3, last exit code 137, OOMKilled;"
                " log: kubectl logs qwen-0 -c engine --previous)"
            ),
        ),
        (restarting(Stage.DOWN, engine_restarts=1), "engine restarting (restart 1)"),
        (restarting(Stage.DOWN), "engine starting"),
        (
            restarting(Stage.DOWN, engine_restarts=1, engine_since=60.0, ready_changed_at=61.0),
            "engine restarting (restart 1)",
        ),
        (
            restarting(Stage.DOWN, engine_restarts=1, engine_since=0.0, ready_changed_at=60.0),
            "engine does not answer; see: kubectl logs qwen-0 -c engine",
        ),
        (restarting(Stage.CLOSED), "engine is up, loading step-1"),
        (
            restarting(Stage.CLOSED, engine_restarts=2, engine_exit="1"),
            "engine is up, loading step-1 (restart 2, last exit code 1)",
        ),
        (restarting(Stage.DOWN, engine_restarts=3, trouble="engine: X: y"), "engine: X: y"),
        (
            restarting(Stage.DOWN, problem(Code.ENGINE_UNREACHABLE), engine_restarts=1),
            "engine restarting (restart 1)",
        ),
        (
            restarting(Stage.DOWN, problem(Code.ENGINE_UNREACHABLE)),
            f"EngineUnreachable: {problem(Code.ENGINE_UNREACHABLE).message}",
        ),
        (
            restarting(Stage.DOWN, problem(Code.RELOAD_FAILED), engine_restarts=1),
            f"ReloadFailed: {problem(Code.RELOAD_FAILED).message}",
        ),
    ],
    ids=[
        *("restarts", "no code", "starts", "is checked", "hangs", "is up", "is up again"),
        "Kubernetes knows more",
        *("restarts unreached", "is not reached", "failed before"),
    ],
)
def test_a_worker_out_of_traffic_says_how_far_its_engine_is(seen: World, says: str) -> None:
    ready = condition(seen, "Ready")

    assert status_for(seen).workers[0].message == says
    assert ready is not None
    assert ready.message == f"1 of 2 workers ready; qwen-0: {says}"


CRASH = (
    "sidecar: restart 4, exit code 137, OOMKilled; log: kubectl logs qwen-0 -c sidecar --previous"
)
SILENCE = "sidecar at http://10.0.0.1:8090 does not answer: ConnectError"


@pytest.mark.parametrize(
    ("fields", "crash", "says"),
    [
        ({"report": None}, CRASH, CRASH),
        ({}, CRASH, CRASH),
        ({"silence": SILENCE}, CRASH, f"{CRASH}; {SILENCE}"),
        ({"silence": SILENCE}, None, SILENCE),
        ({"reachable": True}, CRASH, "engine starting"),
    ],
    ids=[
        "before its first answer",
        "after one",
        "silent for long",
        "silent for another reason",
        "up",
    ],
)
def test_a_sidecar_that_crashes_says_so_between_its_restarts(
    fields: dict[str, Any], crash: str | None, says: str
) -> None:
    known = replace(worker(0, Stage.DOWN), reachable=False)
    assert known.pod is not None
    pod = replace(known.pod, crash=crash)
    seen = workers.world(replace(known, pod=pod, **fields), worker(1))

    ready = condition(seen, "Ready")

    assert status_for(seen).workers[0].message == says
    assert ready is not None
    assert ready.message == f"1 of 2 workers ready; qwen-0: {says}"


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({}, None),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "137, OOMKilled"),
        ({"terminated": {"exitCode": 1, "reason": "Error"}}, "1"),
        ({"terminated": {"exitCode": 0}}, "0"),
        (
            {"terminated": {"exitCode": 2, "message": "usage\nx: error: unknown --bogus\n"}},
            "2: x: error: unknown --bogus",
        ),
    ],
)
def test_how_an_engine_ended_is_read_of_its_pod(last: dict[str, Any], expected: str | None) -> None:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    engine = {"name": "engine", "restartCount": 1, "lastState": last, "state": state}
    labels = {"rlfleet.dev/fleet": "qwen", "rlfleet.dev/ordinal": "0"}
    raw = {
        "metadata": {"name": "qwen-0", "namespace": "rl", "uid": "p", "labels": labels},
        "status": {"phase": "Running", "containerStatuses": [engine]},
    }

    found = pod_from(raw)

    assert found is not None
    assert (found.engine_exit, found.engine_restarts) == (expected, 1)
    assert found.engine_since == 1_767_225_600.0


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (workers.world(worker(0), worker(1)), "2 of 2 workers serve step-1"),
        (restarting(Stage.DOWN, engine_restarts=1), "1 of 2 workers ready; qwen-0 Starting"),
        (
            restarting(Stage.DOWN, engine_restarts=3),
            "1 of 2 workers ready; qwen-0 Starting (restart 3)",
        ),
        (restarting(Stage.OPEN, ready=False), "1 of 2 workers ready; qwen-0 not ready"),
        (refusing(), "Stalled: CheckpointInvalid; 2 of 2 workers ready"),
        (workers.world(replicas=0), "0 workers requested (spec.replicas is 0)"),
        (
            workers.world(worker(0, proved="a" * 100), worker(1)),
            f"2 of 2 workers serve {'a' * 58}…",
        ),
    ],
    ids=["well", "one is out", "one crashes", "node lost", "stalled", "none", "long names"],
)
def test_the_column_is_one_line_that_fits(seen: World, says: str) -> None:
    summary = status_for(seen).summary

    assert summary == says
    assert len(summary) <= 80


def test_the_messages_of_workers_are_cut_where_they_do_not_fit() -> None:
    failure = problem(Code.PROOF_FAILED).model_copy(update={"message": "x" * 5000})
    found = [worker(n, Stage.DOUBT, proved=None, failure=failure) for n in range(8)]
    seen = workers.world(*found, weightVersion="v" * 128, status=recorded("v" * 128, "Verifying"))

    status = status_for(seen)

    assert max(len(c.message) for c in status.conditions) == 1024


def led_by_another(seen: World) -> World:
    """Return the fleet as a new leader sees it before any sidecar has answered it."""
    status = status_for(seen)
    unheard = (replace(one, report=None, reachable=False, silence=None) for one in seen.workers)
    fleet = replace(seen.fleet, status=status)
    return replace(seen, fleet=fleet, workers=remembered(unheard, status))


def test_a_new_leader_shows_what_was_known_until_the_workers_answer() -> None:
    known = workers.world(
        worker(0),
        worker(1, Stage.DOUBT, failure=problem(Code.PROOF_FAILED, "step-1")),
        replace(worker(2), reachable=False, silence="sidecar does not answer"),
        status=recorded("step-1", "Completed"),
    )
    before = status_for(known)
    assert [one.phase for one in before.workers] == ["Serving", "Quarantined", "Unreachable"]

    after = status_for(led_by_another(known))

    assert events.between(before, after) == []
    assert [one.message for one in after.workers] == [one.message for one in before.workers]
    assert [one.phase for one in after.workers] == [one.phase for one in before.workers]
    # Of the silent worker only the pod is known, as before.
    assert [one.version for one in after.workers] == ["step-1", None, None]
    assert (after.serving, after.summary) == (before.serving, before.summary)
    assert after.quarantined_replicas == before.quarantined_replicas


def test_a_new_leader_shows_a_new_pod_as_starting_whatever_was_known_of_the_one_before() -> None:
    known = workers.world(worker(0), status=recorded("step-1", "Completed"))
    pod = workers.pod(0, uid="new", ready=False, weights_ready=None)
    replaced = replace(known, workers=(replace(worker(0), pod=pod),))

    seen = led_by_another(replace(replaced, fleet=led_by_another(known).fleet))

    assert [(one.phase, one.version) for one in status_for(seen).workers] == [("Starting", None)]


def held(*paused_s: float | None, **spec: Any) -> World:
    """Return a fleet whose workers have been paused for so long by a trainer."""
    found = []
    for n, seconds in enumerate(paused_s):
        stage = Stage.OPEN if seconds is None else Stage.PAUSED
        one = worker(n, stage, proved="step-1", paused_s=seconds)
        pod = workers.pod(n)
        found.append(replace(one, pod=pod))
    return workers.world(*found, **(BY_HAND | spec))


@pytest.mark.parametrize("paused_s", [(None, None), (None, 29.0), (3.0, 5.0)])
def test_a_change_that_takes_its_time_is_no_word_of_waiting(
    paused_s: tuple[float | None, ...],
) -> None:
    seen = held(*paused_s)
    ready = condition(seen, "Ready")

    assert condition(seen, "Degraded") is None
    assert ready is not None
    assert ready.reason != "RequestsWaiting"


@pytest.mark.parametrize(
    ("paused_s", "says"),
    [
        ((31.0, None), "requests wait over 30 s at qwen-0 (Pausing)"),
        ((59.0, 130.0), "requests wait over 2 min at qwen-1 (Pausing) and 1 more"),
        ((None, 9000.0), "requests wait over 60 min at qwen-1 (Pausing)"),
    ],
)
def test_a_fleet_whose_requests_wait_is_degraded(
    paused_s: tuple[float | None, ...], says: str
) -> None:
    """After a trainer's update that failed, sampling hangs until the trainer comes back."""
    seen = held(*paused_s)
    status = status_for(seen)
    ready, degraded = condition(seen, "Ready"), condition(seen, "Degraded")

    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "RequestsWaiting")
    assert ready.message == f"2 of 2 workers ready; {says}"
    assert degraded is not None
    assert degraded.reason == "RequestsWaiting"
    assert degraded.message.startswith(says)
    found = events.between(status_for(held(None, None)), status)
    assert [(e.type, e.reason) for e in found if e.reason == "RequestsWaiting"] == [
        ("Warning", "RequestsWaiting")
    ]
    later = status_for(held(*(s and s + 600 for s in paused_s)))
    assert "RequestsWaiting" not in [e.reason for e in events.between(status, later)]


def test_requests_that_wait_for_a_rollout_need_no_trainer() -> None:
    """An engine that is slow, or hangs, in a change to the version in the spec."""
    seen = held(61.0, None, weightVersion="step-2", status=recorded("step-2", "Reloading"))

    degraded = condition(seen, "Degraded")

    assert degraded is not None
    assert degraded.reason == "RequestsWaiting"
    assert degraded.message == (
        "requests wait over 60 s at qwen-0 (Pausing); its change (target step-2) takes long;"
        " see vLLM's log: kubectl logs qwen-0 -c engine"
    )


@pytest.mark.parametrize("refused", [None, "weight_dir: got '/etc'"])
def test_a_fleet_that_its_trainer_has_paused_for_long_is_degraded(
    refused: str | None,
) -> None:
    """At the fleet API too: the whole fleet waits, and may for as long as the pause lasts."""
    seen = held(40.0, 41.0)
    pause = TrainerPause(
        operation="fleet-pause-1",
        asked_at=time_of(seen.moment - 41),
        until=time_of(seen.moment + 1459),
        ttl_seconds=1500,
        refused=refused,
    )
    status = seen.fleet.status.model_copy(update={"trainer_pause": pause})
    seen = replace(seen, fleet=replace(seen.fleet, status=status))

    ready, degraded = condition(seen, "Ready"), condition(seen, "Degraded")

    assert ready is not None
    assert ready.reason == "RequestsWaiting"
    assert degraded is not None
    assert "requests wait over 30 s at qwen-1 (Pausing) and 1 more" in degraded.message
    assert (refused or "the trainer must update or resume") in degraded.message
    found = events.between(status_for(held(None, None)), status_for(seen))
    assert "RequestsWaiting" in [event.reason for event in found]


def test_a_fleet_looks_again_when_there_is_more_to_say_of_the_waiting() -> None:
    assert due_in_s(held(20.0, None)) == 10.0
    assert due_in_s(held(61.0, 35.0)) == 25.0
