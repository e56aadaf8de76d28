"""A version that holds nowhere takes few of the workers that serve nothing, a bad one none."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Prepare, Resume, Update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.simulation.model_fleet import recorded, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from tests import fleets, workers

FATES = {"step-1": Effect.GOOD, "step-2": Effect.BREAKS}
ONE = {"maxUnavailable": 1}


def closed(ordinal: int, **fields: object) -> Worker:
    """Return a worker whose engine was restarted."""
    return workers.worker(ordinal, Stage.CLOSED, **{"prepared": "step-2", **fields})


def seen_of(*some: Worker, before: str = "step-1", **rules: object) -> World:
    """Return a fleet that is asked for step-2."""
    status = workers.recorded("step-2", "Updating", **{"from": before})
    return workers.world(*some, weightVersion="step-2", status=status, rollout={**ONE, **rules})


def updates(world: World) -> dict[str, str]:
    return {a.worker: a.version for a in plan(world).actions if isinstance(a, Update)}


def prepares(world: World) -> dict[str, str]:
    return {a.worker: a.version for a in plan(world).actions if isinstance(a, Prepare)}


@pytest.mark.parametrize("strategy", ["Rolling", "Canary"])
@pytest.mark.parametrize("policy", ["Quarantine", "Rollback", "Hold"])
def test_a_joiner_goes_to_the_old_version_once_the_new_one_has_failed(
    strategy: str, policy: str
) -> None:
    failed = workers.worker(0, Stage.DOUBT, failure=workers.problem(Code.RELOAD_FAILED))
    trying = replace(workers.worker(1, Stage.LOADING), calling=Verb.RELOAD)
    serving = [workers.worker(n, prepared="step-2") for n in (4, 5)]

    world = seen_of(
        failed, trying, closed(2), closed(3), *serving, strategy=strategy, onFailure=policy
    )

    assert updates(world) == {}
    assert prepares(world) == {"qwen-2": "step-1", "qwen-3": "step-1"}


def test_of_those_that_serve_nothing_one_tries_and_the_others_serve_the_old_version() -> None:
    world = seen_of(closed(0), closed(1), closed(2), workers.worker(3, prepared="step-2"))

    assert updates(world) == {"qwen-0": "step-2"}
    assert prepares(world) == {"qwen-1": "step-1", "qwen-2": "step-1"}


def test_with_nothing_to_fall_back_on_the_others_wait_for_the_first_proof() -> None:
    world = seen_of(closed(0), closed(1), closed(2, prepared=None), before="")

    assert updates(world) == {"qwen-0": "step-2"}
    assert prepares(world) == {"qwen-2": "step-2"}


def test_once_the_version_holds_all_that_serve_nothing_load_it() -> None:
    holder = workers.worker(0, proved="step-2")

    assert set(updates(seen_of(holder, closed(1), closed(2)))) == {"qwen-1", "qwen-2"}


def test_a_worker_that_fails_on_its_way_holds_up_no_other() -> None:
    stuck = closed(0, failure=workers.problem(Code.PAUSE_FAILED))

    assert updates(seen_of(stuck, closed(1), before="")) == {"qwen-1": "step-2"}


def test_a_canary_takes_the_place_of_a_joiner_that_is_none() -> None:
    seen = seen_of(closed(0), closed(1), strategy="Canary")

    assert updates(seen) == {"qwen-0": "step-2"}


def paused(ordinal: int) -> Worker:
    """Return a worker that a trainer has paused at its sidecar."""
    one = workers.worker(ordinal, Stage.PAUSED, proved="step-1", prepared="step-2", paused_s=1.0)
    return replace(one, pod=workers.pod(ordinal))


def test_workers_that_a_trainer_paused_change_by_the_budget_and_the_others_serve_again() -> None:
    world = seen_of(*map(paused, range(4)))

    assert updates(world) == {"qwen-0": "step-2"}
    resumed = [a.worker for a in plan(world).actions if isinstance(a, Resume)]
    assert resumed == ["qwen-1", "qwen-2", "qwen-3"]


def test_a_worker_that_is_paused_changes_before_one_that_serves() -> None:
    world = seen_of(workers.worker(0, prepared="step-2"), paused(1))

    assert updates(world) == {"qwen-1": "step-2"}


def restarting(world: World) -> World:
    """Return the fleet after four engines were restarted."""
    lost = [replace(w, report=None) if w.ordinal < 4 else w for w in world.workers]
    return replace(world, workers=tuple(lost))


def held_by_trainer(world: World) -> World:
    """Return the fleet after a trainer has paused each worker at its sidecar."""
    for ordinal in range(6):
        paused_at = {"stage": Stage.PAUSED, "paused_s": 1.0, "prepared": "step-2"}
        world = fleets.changed(world, ordinal, **paused_at)
    return world


@pytest.mark.parametrize("befalls", [restarting, held_by_trainer])
def test_a_bad_version_costs_one_worker_whichever_workers_are_idle(
    befalls: Callable[[World], World],
) -> None:
    asked = {"replicas": 6, "weightVersion": "step-1", "rollout": ONE}
    world = fleets.at_rest(fleets.world(asked), FATES)
    world = settled(fleets.asking(world, weight_version="step-2"))
    world = recorded(world, plan(world))

    world = fleets.at_rest(befalls(world), FATES)

    assert sum(w.stage is Stage.DOUBT for w in world.desired) == 1
    assert sum(w.is_open for w in world.desired) == 5
