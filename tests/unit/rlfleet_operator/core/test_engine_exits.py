"""A process that ends while a version loads is not a bad version; one that always does is."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Exits, Stage
from rlfleet_operator.core.model.actions import Prepare, Update
from rlfleet_operator.core.model.worker_phase import complaint_of
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.failure_rules import TRIES
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.core.status.events import between
from rlfleet_operator.core.status.fleet import status_of
from tests import fleets, workers

HISTORY = {
    "id": 0,
    "from": "base",
    "to": "step-2",
    "result": "Completed",
    "startedAt": "2023-11-14T22:13:20Z",
    "seconds": 1.0,
}


def ended(ordinal: int, count: int = 1, stage: Stage = Stage.DOWN, **pod: Any) -> Worker:
    """Return a worker whose engine exited while it loaded step-2."""
    exits = Exits(version="step-2", operation="rollout-1", count=count)
    failure = workers.problem(Code.RELOAD_FAILED) if stage is not Stage.CLOSED else None
    one = workers.worker(ordinal, stage, exits=exits, failure=failure, prepared="step-2")
    return replace(one, pod=workers.pod(ordinal, ready=False, weights_ready=False, **pod))


def seen_of(*some: Worker, history: tuple[dict[str, Any], ...] = (), **rules: Any) -> World:
    status = workers.recorded("step-2", "Reloading") | {"history": list(history), "replacing": []}
    rollout = {"maxUnavailable": 1, **rules}
    return workers.world(*some, weightVersion="step-2", status=status, rollout=rollout)


def updates(world: World) -> dict[str, str]:
    return {a.worker: a.version for a in plan(world).actions if isinstance(a, Update)}


def is_failed(world: World) -> bool:
    rollout = plan(world).rollout
    return rollout is not None and not rollout.is_active


SERVING = [workers.worker(n, prepared="step-2") for n in (1, 2)]


@pytest.mark.parametrize("stage", [Stage.CLOSED, Stage.PAUSED])
def test_an_engine_that_is_back_and_fails_to_pause_tries_again(stage: Stage) -> None:
    one = ended(0, stage=Stage.CLOSED)
    assert one.report is not None
    failure = workers.problem(Code.PAUSE_FAILED)
    report = one.report.model_copy(update={"stage": stage, "failure": failure})
    world = seen_of(replace(one, report=report), *SERVING)

    assert updates(world) == {"qwen-0": "step-2"}


@pytest.mark.parametrize("stage", [Stage.DOWN, Stage.DOUBT])
@pytest.mark.parametrize("policy", ["Quarantine", "Rollback", "Hold"])
def test_an_engine_that_exited_in_a_load_is_waited_for(stage: Stage, policy: str) -> None:
    world = seen_of(ended(0, stage=stage), *SERVING, onFailure=policy)

    assert not is_failed(world)
    assert updates(world) == {}


def test_the_version_is_tried_again_where_it_was_tried_once_the_engine_is_back() -> None:
    joiner = workers.worker(3, Stage.CLOSED, prepared="step-2")
    world = seen_of(ended(0, stage=Stage.CLOSED), *SERVING, joiner)

    assert updates(world) == {"qwen-0": "step-2"}
    prepares = {a.worker: a.version for a in plan(world).actions if isinstance(a, Prepare)}
    assert prepares == {"qwen-3": "step-1"}


def test_a_version_with_which_engines_exit_each_time_is_bad() -> None:
    world = seen_of(ended(0, TRIES), *SERVING)

    assert is_failed(world)
    stopped = plan(world).rollout
    assert stopped is not None
    assert stopped.why == (
        "step-2 failed on 1 of 3 workers; qwen-0: engine exited while step-2 was loading, 3 times"
    )


def test_exits_on_several_workers_count_together() -> None:
    assert is_failed(seen_of(ended(0, 2), ended(1, 1), *SERVING))
    assert not is_failed(seen_of(ended(0, 1), ended(1, 1), *SERVING))


def test_one_proof_acquits_the_version_however_often_engines_exited() -> None:
    world = seen_of(ended(0, 7, Stage.CLOSED), workers.worker(1, proved="step-2"))

    assert not is_failed(world)
    assert updates(world) == {"qwen-0": "step-2"}


def test_a_version_that_was_proved_before_is_tried_on_until_it_holds() -> None:
    world = seen_of(ended(0, 7, Stage.CLOSED), *SERVING, history=(HISTORY,))

    assert not is_failed(world)
    assert updates(world) == {"qwen-0": "step-2"}


def test_at_most_max_unavailable_workers_lose_their_engines_to_one_version() -> None:
    ends = [ended(0, 7), ended(3, 7)]

    assert updates(seen_of(*ends, *SERVING, history=(HISTORY,))) == {}


def test_a_worker_that_does_not_come_back_is_not_waited_for() -> None:
    gone = replace(ended(0), reachable=False, silence="sidecar does not answer")

    assert updates(seen_of(gone, *SERVING)) == {"qwen-1": "step-2"}


def test_a_worker_on_which_a_bad_version_exited_serves_the_old_one() -> None:
    status = workers.recorded("step-2", "Failed", message="why")
    back = ended(0, TRIES, Stage.CLOSED)
    world = workers.world(back, *SERVING, weightVersion="step-2", status=status)

    prepares = {a.worker: a.version for a in plan(world).actions if isinstance(a, Prepare)}
    assert prepares == {"qwen-0": "step-1"}


def test_a_crash_says_how_the_engine_ended() -> None:
    world = seen_of(ended(0, 2, engine_exit="137, OOMKilled"), *SERVING)

    told = complaint_of(world.workers[0], world)

    assert told == "engine exited (code 137, OOMKilled) while step-2 was loading, 2 times"


def test_an_engine_that_is_back_loads_and_says_how_it_ended() -> None:
    world = seen_of(ended(0, 2, Stage.CLOSED, engine_exit="137"), *SERVING)

    told = complaint_of(world.workers[0], world)

    assert told == (
        "engine is up, loading step-2; it exited (code 137) while step-2 was loading, 2 times"
    )


def test_a_crash_is_an_event_of_its_own_and_a_refusal_is_none() -> None:
    before = seen_of(ended(0), *SERVING)
    after = seen_of(ended(0, 2), *SERVING)
    refused = workers.worker(0, Stage.DOUBT, failure=workers.problem(Code.PROOF_FAILED))

    told = between(status_of(before, None), status_of(after, None))
    other = between(status_of(before, None), status_of(seen_of(refused, *SERVING), None))

    assert [(e.reason, e.message) for e in told] == [
        ("EngineExited", "qwen-0: engine exited while step-2 was loading, 2 times")
    ]
    assert "EngineExited" not in {e.reason for e in other}


@pytest.mark.parametrize("strategy", ["Rolling", "Canary", "Barrier"])
def test_a_version_that_ends_every_engine_costs_one_worker_that_serves_the_old_one_again(
    strategy: str,
) -> None:
    rules = {"maxUnavailable": 1, "strategy": strategy}
    asked = {"replicas": 3, "weightVersion": "step-1", "rollout": rules}
    world = fleets.asking(fleets.at_rest(fleets.world(asked)), weight_version="step-2")

    world = fleets.at_rest(world, {"step-2": Effect.EXITS})

    rollout = world.fleet.status.rollout
    assert rollout is not None
    assert rollout.phase == "Failed"
    assert [w.proved for w in world.desired] == ["step-1"] * 3
