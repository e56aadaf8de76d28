"""How a fleet and its workers stand, for a trainer."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.dynamo import ENGINE_ROUTES
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Fleet, Worker
from rlfleet_operator.core.simulation.model_fleet import new_pod
from rlfleet_operator.core.trainer import replies
from rlfleet_operator.core.trainer.models import Fault
from rlfleet_operator.core.trainer.replies import UpdateProgress, WorkerState
from tests import fleets

UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
ROLLOUT: dict[str, Any] = {
    "id": 2,
    "asked": "step-2",
    "from": "step-1",
    "to": "step-2",
    "phase": "Reloading",
    "startedAt": "2026-01-01T00:00:00Z",
}
TRAINERS = {"trainerTarget": {"version": "step-2", "askedAt": "2026-01-01T00:00:00Z"}}


def fleet(phase: str = "Completed", spec: dict[str, Any] | None = None, **status: Any) -> Fleet:
    """Return a fleet of two whose trainer asked for step-2."""
    told = TRAINERS | {"target": "step-2", "rollout": ROLLOUT | {"phase": phase}} | status
    return fleets.fleet({"replicas": 2} | (spec or {}), status=told)


def pod(*, ready: bool = True) -> Pod:
    world = fleets.world({"replicas": 1})
    return replace(new_pod(world, Worker("qwen-0", 0)), ready=ready, uid=UID)


def report(version: str | None = "step-2", **fields: Any) -> WorkerReport:
    told: dict[str, Any] = {"session": "s", "stage": Stage.OPEN, "proved": version}
    return WorkerReport(**told | fields)


def worker(said: WorkerReport | None, *, ready: bool = True, why: str = "") -> WorkerState:
    return WorkerState("qwen-0", pod(ready=ready), said, why)


@pytest.mark.parametrize(
    ("phase", "status", "course"),
    [
        ("Completed", {}, UpdateProgress.COMPLETED),
        ("Reloading", {}, UpdateProgress.UNDER_WAY),
        ("CanaryHold", {}, UpdateProgress.UNDER_WAY),
        ("Paused", {}, UpdateProgress.UNDER_WAY),
        ("Failed", {}, UpdateProgress.ENDED),
        ("Held", {}, UpdateProgress.ENDED),
        ("RolledBack", {}, UpdateProgress.ENDED),
        ("Refused", {}, UpdateProgress.ENDED),
        ("Partitioned", {}, UpdateProgress.ENDED),
        ("Completed", {"target": ""}, UpdateProgress.UNDER_WAY),
        ("Completed", {"target": "step-1"}, UpdateProgress.UNDER_WAY),
        (
            "",
            {"rollout": ROLLOUT | {"phase": "Completed", "withdrawn": True}},
            UpdateProgress.UNDER_WAY,
        ),
        ("Completed", {"rollout": None}, UpdateProgress.UNDER_WAY),
        (
            "",
            {"rollout": ROLLOUT | {"asked": "step-1", "to": "step-1", "phase": "Completed"}},
            UpdateProgress.UNDER_WAY,
        ),
        (
            "",
            {"rollout": ROLLOUT | {"phase": "Failed", "restartId": "x"}},
            UpdateProgress.UNDER_WAY,
        ),
        ("Completed", {"trainerTarget": None}, UpdateProgress.SUPERSEDED),
        (
            "Completed",
            {"trainerTarget": {"version": "step-3", "askedAt": ""}},
            UpdateProgress.SUPERSEDED,
        ),
    ],
)
def test_the_recorded_rollout_decides_how_far_an_update_has_come(
    phase: str, status: dict[str, Any], course: UpdateProgress
) -> None:
    assert replies.course(fleet(phase, **status), "step-2") is course


def test_another_version_in_the_spec_supersedes_and_the_same_continues() -> None:
    other = fleet(spec={"weightVersion": "step-3"})
    same = fleet(spec={"weightVersion": "step-2"})

    assert replies.course(other, "step-2") is UpdateProgress.SUPERSEDED
    assert replies.course(same, "step-2") is UpdateProgress.COMPLETED


GOOD = report()


@pytest.mark.parametrize(
    ("told", "said", "status", "code", "retryable"),
    [
        (fleet(), [GOOD, GOOD], 200, None, False),
        (fleet(), [], 503, "NoWorkers", True),
        (fleet(), [GOOD, None], 502, "NotProved", True),
        (fleet(), [GOOD, report("step-1")], 502, "NotProved", True),
        (fleet(), [GOOD, report(None)], 502, "NotProved", True),
        (fleet(), [GOOD, report(stage=Stage.PROVED)], 502, "NotProved", True),
        (fleet(), [GOOD, report(stage=Stage.PAUSED)], 502, "NotProved", True),
        (fleet(), [GOOD, report(stage=Stage.DOUBT)], 502, "NotProved", True),
        # Proved by all, and not completed: the rollout's own condition is wider.
        (fleet("Resuming"), [GOOD, GOOD], 502, "NotProved", True),
        (fleet("Refused"), [GOOD, report("step-1")], 502, "NotProved", True),
        (fleet("Failed"), [GOOD, report("step-1")], 502, "NotProved", False),
        (fleet("RolledBack"), [report("step-1")] * 2, 502, "NotProved", False),
        (fleet(trainerTarget=None), [GOOD, GOOD], 409, "Superseded", False),
    ],
)
def test_an_update_succeeded_only_if_every_worker_proved_it(
    told: Fleet,
    said: list[WorkerReport | None],
    status: int,
    code: str | None,
    *,
    retryable: bool,
) -> None:
    seen, reply = replies.updated(told, [worker(one) for one in said], "step-2")

    assert (seen, reply.code, reply.retryable) == (status, code, retryable)
    assert reply.status == ("ok" if status == 200 else "error")
    proved = [one == GOOD for one in said]
    assert [one.status == "ok" for one in reply.workers] == proved
    assert reply.message.startswith(f"{sum(proved)} of {len(said)} workers proved step-2")


def test_an_update_of_nothing_returns_the_version_that_stays() -> None:
    both = [worker(report("step-1")), worker(report("step-1"))]

    status, said = replies.nothing_loaded(fleet(), both)

    assert (status, said.status, said.version, len(said.workers)) == (200, "ok", "step-1", 2)
    assert said.message == "nothing was loaded: weight_dir names no directory"
    status, said = replies.nothing_loaded(fleet(), [worker(report("step-1")), worker(report())])
    assert (status, said.version) == (200, None)
    status, said = replies.nothing_loaded(fleet(), [worker(report()), worker(None, why="gone")])
    assert (status, said.version, said.workers[1].message) == (200, None, "gone")


def test_an_update_of_nothing_is_no_success_of_a_fleet_of_none() -> None:
    status, said = replies.nothing_loaded(fleet(), [])

    assert (status, said.status, said.code) == (503, "error", Fault.NO_WORKERS)


def test_the_reply_has_each_worker_s_problem() -> None:
    failure = Problem.of(Code.PROOF_FAILED, "the probe differs")
    broken = worker(report(None, stage=Stage.DOUBT, failure=failure), ready=False)

    _, reply = replies.updated(fleet("Failed"), [broken, worker(None, why="no pod")], "step-2")

    assert [w.message for w in reply.workers] == ["ProofFailed: the probe differs", "no pod"]
    assert [w.stage for w in reply.workers] == ["Doubt", None]


@pytest.mark.parametrize(
    ("version", "shown"), [("step-2", "VersionNotFound: no such directory"), ("typo", None)]
)
def test_a_rejection_is_shown_while_its_version_is_the_target(
    version: str, shown: str | None
) -> None:
    refusal = Problem.of(Code.VERSION_NOT_FOUND, "no such directory", version=version)

    reply = replies.state(fleet(), [worker(report("step-1", refusal=refusal))])

    assert [w.message for w in reply.workers] == [shown]


PAUSED = report("step-1", stage=Stage.PAUSED, paused_s=1.5, in_flight=3)


@pytest.mark.parametrize(
    ("said", "ready", "paused", "in_flight", "applied"),
    [
        ([GOOD, GOOD], True, False, 0, "step-2"),
        ([GOOD, report("step-1")], True, False, 0, None),
        ([GOOD, PAUSED], False, False, 3, None),
        ([PAUSED, PAUSED], False, True, 6, "step-1"),
        ([PAUSED, None], False, False, 3, None),
        ([None, None], False, False, 0, None),
        ([], False, False, 0, None),
    ],
)
def test_the_state_is_that_of_all_workers(
    said: list[WorkerReport | None],
    *,
    ready: bool,
    paused: bool,
    in_flight: int,
    applied: str | None,
) -> None:
    told = replies.state(fleet(), [worker(one) for one in said])

    assert (told.ready, told.paused, told.in_flight) == (ready, paused, in_flight)
    assert told.applied_version == applied
    assert len(told.workers) == len(said)


def test_a_worker_whose_pod_takes_no_traffic_makes_the_fleet_unready() -> None:
    assert not replies.state(fleet(), [worker(GOOD), worker(GOOD, ready=False)]).ready


@pytest.mark.parametrize(
    ("told", "desired", "by"),
    [
        (fleet(), "step-2", "trainer"),
        (fleet(spec={"weightVersion": "step-3"}), "step-3", "spec"),
        (fleet(trainerTarget=None), None, None),
    ],
)
def test_the_state_shows_the_target_and_what_sets_it(
    told: Fleet, desired: str | None, by: str | None
) -> None:
    said = replies.state(told, [])

    assert (said.desired_version, said.desired_by) == (desired, by)


def test_the_workers_are_the_spec_s_in_their_order() -> None:
    pods = {name: replace(pod(), name=name) for name in ("qwen-2", "qwen-1")}

    heard = replies.states_of(fleet(spec={"replicas": 3}), pods, {"qwen-1": GOOD, "qwen-9": GOOD})

    assert [(w.name, w.report, w.why) for w in heard] == [
        ("qwen-0", None, "no pod"),
        ("qwen-1", GOOD, ""),
        ("qwen-2", None, "no address yet"),
    ]


def test_discovery_is_dynamo_s() -> None:
    told = fleet(spec={"engine": {"tensorParallelSize": 2}})

    found = replies.discovery(
        told, [worker(GOOD), replace(worker(None), pod=None, why="no pod")], 8090
    )

    assert found.model_dump(exclude_none=True) == {
        "protocol_version": 1,
        "namespace": "rl",
        "workers": [
            {
                "namespace": "rl",
                "component": "qwen",
                "endpoint": "rl",
                "instance_id": 0x0F0E0D0C0B0A4,
                "transport": "http",
                "request_plane_url": "http://qwen-0.qwen-workers.rl.svc:8000",
                "routes": ENGINE_ROUTES,
                "system_url": "http://qwen-0.qwen-workers.rl.svc:8090",
                "admin_base_url": "http://qwen-0.qwen-workers.rl.svc:8090",
                "model": "qwen",
                "world_size": 2,
            }
        ],
    }
    assert all(w.instance_id < 2**53 for w in found.workers)
