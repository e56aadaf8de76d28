"""Weights and pods take workers out by one budget, also once a new template is all but through."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import DeletePod, Update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.simulation.model_fleet import carried_out, recorded
from rlfleet_operator.core.status.fleet import status_of
from tests import workers


def seen_of(*some: Worker, replacing: tuple[int, ...] = (), **fields: Any) -> World:
    """Return a fleet whose rollout to step-2 is under way."""
    status = workers.recorded("step-2", "Updating") | {"replacing": list(replacing)}
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}
    return replace(workers.world(*some, status=status, **asked), **fields)


def test_without_a_record_of_an_older_release_each_starting_worker_counts() -> None:
    """It does not say whose pods that release deleted for a new template."""
    status = workers.recorded("step-2", "Updating")
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}
    world = workers.world(serving(0), starting(1), status=status, **asked)
    assert world.fleet.status.replacing is None

    assert updated(world) == []
    assert status_of(world, None).replacing == [1]
    ready = workers.world(serving(0), workers.worker(1, proved="step-2"), status=status, **asked)
    assert updated(ready) == ["qwen-0"]
    assert status_of(ready, None).replacing == []


def test_a_fleet_without_a_rollout_replaces_no_pod() -> None:
    world = workers.world(starting(0), starting(1))

    assert status_of(world, None).replacing == []


def outdated(ordinal: int) -> Worker:
    one = workers.worker(ordinal, prepared="step-2")
    return replace(one, pod=workers.pod(ordinal, template_hash="old"))


def starting(ordinal: int, **pod: Any) -> Worker:
    """Return a worker whose new pod loads the model."""
    made = workers.pod(ordinal, **{"ready": False, "weights_ready": None, **pod})
    return replace(workers.worker(ordinal, Stage.DOWN), pod=made)


def serving(ordinal: int) -> Worker:
    return workers.worker(ordinal, prepared="step-2")


def updated(world: World) -> list[str]:
    return [a.worker for a in plan(world).actions if isinstance(a, Update)]


def deleted(world: World) -> list[str]:
    return [a.name for a in plan(world).actions if isinstance(a, DeletePod)]


def test_the_last_pod_that_a_new_template_replaced_is_charged_until_its_successor_is_ready() -> (
    None
):
    world = seen_of(serving(0), outdated(1))
    step = plan(world)
    assert deleted(world) == ["qwen-1"]

    world = recorded(world, step)
    for action in step.actions:
        world = carried_out(world, action, {})
    assert world.fleet.status.replacing == [1]
    assert updated(world) == []

    booting = replace(world, workers=(world.workers[0], starting(1)))
    assert not booting.has_outdated
    assert updated(booting) == []
    assert status_of(booting, None).replacing == [1]

    ready = replace(world, workers=(world.workers[0], serving(1)))
    assert status_of(ready, None).replacing == []
    assert updated(ready) == ["qwen-0"]


def test_a_process_that_deleted_a_pod_and_wrote_nothing_is_found_out() -> None:
    ending = outdated(1)
    assert ending.pod is not None
    ending = replace(ending, pod=replace(ending.pod, terminating=True))

    assert status_of(seen_of(serving(0), ending), None).replacing == [1]


LET_GO: dict[str, dict[str, Any]] = {
    "it has trouble": {"trouble": "engine: CrashLoopBackOff: x"},
    "its engine restarts": {"engine_restarts": 1},
    "it took too long": {"created_at": workers.MOMENT - 601},
}


@pytest.mark.parametrize("pod", LET_GO.values(), ids=LET_GO)
def test_a_replacement_that_is_stuck_no_longer_counts(pod: dict[str, Any]) -> None:
    world = seen_of(serving(0), starting(1, **pod), replacing=(1,))

    assert updated(world) == ["qwen-0"]
    assert status_of(world, None).replacing == []


def test_a_pod_that_the_operator_did_not_delete_is_not_charged() -> None:
    assert updated(seen_of(serving(0), starting(1))) == ["qwen-0"]


def unheard(ordinal: int, **fields: Any) -> Worker:
    """Return a worker that has not answered a new leader yet."""
    return replace(workers.worker(ordinal), report=None, reachable=False, **fields)


def test_a_new_template_takes_no_pod_while_a_silent_worker_may_be_in_a_change() -> None:
    world = workers.world(
        *(workers.worker(n) for n in range(3)),
        unheard(3),
        rollout={"maxUnavailable": 1},
        engine={"args": ["--max-num-seqs=8"]},
    )

    assert deleted(world) == []


def test_a_worker_whose_silence_has_lasted_is_the_first_that_a_new_template_replaces() -> None:
    world = workers.world(
        *(workers.worker(n) for n in range(3)),
        unheard(3, silence="sidecar does not answer"),
        rollout={"maxUnavailable": 1},
        engine={"args": ["--max-num-seqs=8"]},
    )

    assert deleted(world) == ["qwen-3"]
