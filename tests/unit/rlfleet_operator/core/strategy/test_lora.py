"""Adapters of a fleet: which worker loads what, which is ready, what status shows."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.core.model.actions import (
    LoadAdapter,
    LoRACommand,
    MarkPod,
    Prepare,
    Resume,
    UnloadAdapter,
    Update,
)
from rlfleet_operator.core.model.wanted_lora import WantedLoRA, declared
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status import conditions, events
from rlfleet_operator.core.status.fleet import patch_of, status_of
from rlfleet_operator.core.strategy import lora
from rlfleet_operator.crd.fleet_status import FleetStatus
from rlfleet_operator.crd.lora import AdapterSpec
from tests import fleets, workers

POET: dict[str, Any] = {"name": "poet", "path": "/weights/poet/{version}", "version": "v1"}
CRITIC: dict[str, Any] = {"name": "critic", "path": "/weights/critic", "version": "v7"}
TARGET: dict[str, Any] = {"version": "step-1", "askedAt": "2023-11-14T22:13:20Z"}
SETTLED = workers.recorded("step-1", "Completed")


def wanted(spec: dict[str, Any]) -> WantedLoRA:
    return declared([AdapterSpec.model_validate(spec)])[0]


OPERATION = lora.operation_of(wanted(POET))


def loaded(declared: dict[str, Any], **fields: Any) -> AdapterReport:
    """Return the report of a worker that serves it."""
    spec = AdapterSpec.model_validate(declared)
    told = {"name": spec.name, "version": spec.version, "path": spec.directory}
    return AdapterReport.model_validate(told | {"is_loaded": True, "is_declared": True} | fields)


def failing(declared: dict[str, Any], code: Code, before: str | None = None) -> AdapterReport:
    """Return the report of a worker that failed to load it."""
    spec = AdapterSpec.model_validate(declared)
    operation = lora.operation_of(wanted(declared))
    problem = Problem.of(code, "why", version=spec.version, operation=operation)
    return AdapterReport(
        name=spec.name,
        version=before,
        is_loaded=before is not None,
        is_declared=True,
        problem=problem,
    )


def seen(*known: Worker, declared: tuple[dict[str, Any], ...] = (POET,)) -> World:
    return workers.world(*known, status=SETTLED, adapters=list(declared))


def asked(world: World) -> list[LoRACommand]:
    return [a for a in plan(world).actions if isinstance(a, LoadAdapter | UnloadAdapter)]


def test_every_worker_loads_the_adapters_that_it_lacks() -> None:
    world = seen(workers.worker(0, adapters=[loaded(POET)]), workers.worker(1))

    assert asked(world) == [LoadAdapter("qwen-1", "poet", "v1", "/weights/poet/v1", OPERATION)]


@pytest.mark.parametrize(
    "other",
    [{"version": "v0"}, {"path": "/weights/else"}, {"is_loaded": False}, {"is_declared": False}],
)
def test_what_is_not_exactly_the_declared_one_is_replaced(other: dict[str, Any]) -> None:
    world = seen(workers.worker(0, adapters=[loaded(POET, **other)]))

    (call,) = asked(world)

    assert isinstance(call, LoadAdapter)


def test_an_adapter_that_left_the_spec_is_unloaded_and_a_trainer_s_stays() -> None:
    own = AdapterReport(name="own", version="v1", is_loaded=True)
    world = seen(workers.worker(0, adapters=[loaded(POET), own]), declared=())

    (call,) = asked(world)

    assert isinstance(call, UnloadAdapter)
    assert call.name == "poet"


def test_one_worker_gets_one_command_at_a_time() -> None:
    world = seen(workers.worker(0), declared=(POET, CRITIC))

    assert [call.name for call in asked(world)] == ["poet"]


BUSY: dict[str, Worker] = {
    "closed": workers.worker(0, Stage.CLOSED),
    "paused": workers.worker(0, Stage.PAUSED, proved="step-1"),
    "proved": workers.worker(0, Stage.PROVED, proved="step-1"),
    "in doubt": workers.worker(0, Stage.DOUBT),
    "silent": replace(workers.worker(0), reachable=False),
    "asked to change": replace(workers.worker(0), calling=Verb.RELOAD),
    "asked to prepare": replace(workers.worker(0), calling=Verb.PREPARE),
    "asked about an adapter": replace(workers.worker(0), calling=Verb.ADAPT),
    "loading an adapter": workers.worker(
        0, running=Running(verb=Verb.ADAPT, operation="x", version="v1")
    ),
    "preparing": workers.worker(0, running=Running(verb=Verb.PREPARE, operation="x", version="v1")),
}


@pytest.mark.parametrize("case", BUSY)
def test_a_busy_worker_gets_no_adapter(case: str) -> None:
    assert asked(seen(BUSY[case])) == []


def test_weights_go_first() -> None:
    rollout = workers.recorded("step-2", "Preparing")
    world = workers.world(
        workers.worker(0), status=rollout, weightVersion="step-2", adapters=[POET]
    )

    commands = plan(world).actions

    assert any(isinstance(command, Prepare) for command in commands)
    assert asked(world) == []


def test_weights_wait_for_an_adapter_s_command_alone() -> None:
    rollout = workers.recorded("step-2", "Reloading")
    worker = workers.worker(0, prepared="step-2")
    world = workers.world(worker, status=rollout, weightVersion="step-2", adapters=[POET])
    adapting = replace(world, workers=(replace(worker, calling=Verb.ADAPT),))

    assert any(isinstance(command, Update) for command in plan(world).actions)
    assert not any(isinstance(command, Update) for command in plan(adapting).actions)


READY = workers.worker(0, prepared="step-2")
ADAPTING = replace(workers.worker(1, prepared="step-2"), calling=Verb.ADAPT)


def barrier(*known: Worker, **rollout: Any) -> World:
    return workers.world(
        *known,
        status=workers.recorded("step-2", "Preparing"),
        weightVersion="step-2",
        rollout={"strategy": "Barrier"} | rollout,
        adapters=[POET],
    )


def test_no_worker_pauses_for_a_barrier_while_one_loads_an_adapter() -> None:
    waiting = workers.worker(0, Stage.PAUSED, prepared="step-2", proved="step-1", paused_s=1.0)

    assert [type(c) for c in plan(barrier(READY, ADAPTING)).actions] == []
    assert [c for c in plan(barrier(waiting, ADAPTING)).actions if isinstance(c, Resume)] == [
        Resume("qwen-0", "step-1", "rollout-1")
    ]


def test_no_adapter_is_loaded_once_a_barrier_may_close_gates() -> None:
    proved = workers.worker(0, Stage.PROVED, installed="step-2", proved="step-2")
    through = workers.worker(0, prepared="step-2", proved="step-2")
    late = replace(READY, retry_at=workers.MOMENT + 1, calling_for=("step-2", "rollout-1"))
    late = replace(late, name="qwen-1", ordinal=1)
    preparing = barrier(READY, workers.worker(1))
    held = barrier(READY, workers.worker(1, prepared="step-2"), paused=True)

    assert asked(barrier(READY, ADAPTING)) == []
    assert asked(barrier(proved, late)) == []
    assert [call.worker for call in asked(preparing)] == ["qwen-0"]
    assert [call.worker for call in asked(held)] == ["qwen-0", "qwen-1"]
    assert [call.worker for call in asked(barrier(through, workers.worker(1)))] == ["qwen-0"]


def test_no_adapter_is_loaded_once_a_trainer_pauses_the_fleet() -> None:
    pause = {
        "operation": "fleet-pause-1",
        "askedAt": "2023-11-14T22:13:20Z",
        "until": "2099-01-01T00:00:00Z",
        "ttlSeconds": 1500,
    }
    known = replace(workers.worker(0), retry_at=workers.MOMENT + 1)
    held = replace(known, calling_for=("step-1", "fleet-pause-1"))
    status = SETTLED | {"trainerPause": pause, "trainerTarget": TARGET}
    world = workers.world(held, status=status, weightVersion=None, adapters=[POET])
    free = workers.world(held, status=SETTLED, adapters=[POET])

    assert (asked(world), len(asked(free))) == ([], 1)


def test_an_adapter_s_command_is_no_change_of_weights() -> None:
    worker = BUSY["loading an adapter"]

    assert not worker.is_changing
    assert not worker.is_busy
    assert conditions.is_synced(worker, "step-1")


@pytest.mark.parametrize(
    ("code", "is_tried_again"),
    [
        (Code.CHECKPOINT_INVALID, True),
        (Code.VERSION_NOT_FOUND, True),
        (Code.INTERNAL, True),
        (Code.ADAPTER_FAILED, False),
    ],
)
def test_a_failure_that_a_trainer_can_repair_is_retried_with_back_off(
    code: Code, *, is_tried_again: bool
) -> None:
    worker = workers.worker(0, adapters=[failing(POET, code)])
    waiting = replace(worker, retry_at=workers.MOMENT + 1)

    assert asked(seen(waiting)) == []
    assert bool(asked(seen(worker))) == is_tried_again


def test_a_broken_adapter_holds_up_no_other() -> None:
    world = seen(
        workers.worker(0, adapters=[failing(POET, Code.CHECKPOINT_INVALID)]),
        declared=(POET, CRITIC),
    )

    assert [call.name for call in asked(world)] == ["critic"]


EDITOR: dict[str, Any] = {"name": "editor", "path": "/weights/editor", "version": "v3"}
BROKEN = [failing(one, Code.CHECKPOINT_INVALID) for one in (POET, CRITIC, EDITOR)]


def after(world: World, call: LoRACommand, waits_s: float = 0.0) -> World:
    """Return the world after a command to its one worker that failed."""
    (worker,) = world.workers
    about = (call.version, call.operation)
    asked = replace(worker, calling_for=about, retry_at=world.moment + waits_s)
    return replace(world, workers=(asked,))


def test_adapters_that_failed_are_tried_in_turn() -> None:
    world = seen(workers.worker(0, adapters=BROKEN), declared=(POET, CRITIC, EDITOR))

    tried = []
    for _ in range(6):
        (call,) = asked(world)
        tried.append(call.name)
        world = after(world, call)

    assert tried == ["poet", "critic", "editor"] * 2


def test_a_failed_adapter_s_back_off_delays_those_that_failed_only() -> None:
    world = seen(workers.worker(0, adapters=BROKEN[:2]), declared=(POET, CRITIC))
    waiting = after(world, asked(world)[0], waits_s=5.0)
    added = seen(*waiting.workers, declared=(POET, CRITIC, EDITOR))

    assert asked(waiting) == []
    assert [call.name for call in asked(added)] == ["editor"]


def test_a_failure_that_no_report_shows_delays_all_adapters_and_then_comes_last() -> None:
    world = seen(workers.worker(0), declared=(POET, CRITIC))
    (call,) = asked(world)

    assert call.name == "poet"
    assert asked(after(world, call, waits_s=5.0)) == []
    assert [call.name for call in asked(after(world, call))] == ["critic"]


def test_an_adapter_that_does_not_unload_delays_no_other_and_is_tried_again() -> None:
    problem = Problem.of(Code.INTERNAL, "why", version="v1", operation="adapter-poet")
    world = seen(workers.worker(0, adapters=[loaded(POET, problem=problem)]), declared=(CRITIC,))
    alone = replace(world, workers=(workers.worker(0, adapters=[*served(world), loaded(CRITIC)]),))
    unload = UnloadAdapter("qwen-0", "poet", "v1", "adapter-poet")

    assert [call.name for call in asked(world)] == ["critic"]
    assert [call.name for call in asked(after(world, unload, waits_s=5.0))] == ["critic"]
    assert asked(alone) == [unload]
    assert asked(after(alone, unload, waits_s=5.0)) == []
    assert asked(after(alone, unload)) == [unload]


def served(world: World) -> list[AdapterReport]:
    (worker,) = world.workers
    return list(worker.report.adapters) if worker.report else []


def test_a_corrected_path_is_another_try() -> None:
    other = POET | {"path": "/weights/corrected"}
    world = seen(workers.worker(0, adapters=[failing(other, Code.ADAPTER_FAILED)]))

    assert len(asked(world)) == 1


def unready(worker: Worker) -> Worker:
    assert worker.pod is not None
    return replace(worker, pod=replace(worker.pod, weights_ready=False))


def marked_ready(worker: Worker) -> bool | None:
    marks = [action for action in plan(seen(worker)).actions if isinstance(action, MarkPod)]
    return marks[0].ready if marks else None


def test_a_late_joiner_takes_traffic_only_with_its_adapters() -> None:
    assert marked_ready(unready(workers.worker(0))) is None
    assert marked_ready(unready(workers.worker(0, adapters=[loaded(POET)]))) is True


def test_workers_serve_the_model_without_a_broken_adapter() -> None:
    broken = workers.worker(0, adapters=[failing(POET, Code.CHECKPOINT_INVALID)])

    assert marked_ready(unready(broken)) is True


def test_serving_workers_stay_ready_when_another_adapter_is_declared() -> None:
    assert marked_ready(workers.worker(0)) is None


def status_for(world: World) -> FleetStatus:
    return fleets.readable(status_of(world, plan(world).rollout))


def test_status_shows_the_state_of_each_adapter() -> None:
    world = seen(
        workers.worker(0, adapters=[loaded(POET), loaded(CRITIC)]),
        workers.worker(1, adapters=[failing(POET, Code.PATH_REFUSED, before="v0")]),
        declared=(POET, CRITIC),
    )

    status = status_for(world)

    poet, critic = status.adapters
    assert (poet.loaded_workers, poet.workers, poet.reason) == (1, 2, "PathRefused")
    assert poet.message == "qwen-1: why"
    assert (critic.loaded_workers, critic.workers, critic.reason) == (1, 2, "")
    assert [worker.adapters for worker in status.workers] == [["poet=v1", "critic=v7"], ["poet=v0"]]
    degraded = {c.type: c.reason for c in status.conditions}
    assert degraded["Ready"] == "AllServing"
    assert degraded["Degraded"] == "AdaptersFailed"
    assert patch_of(status)["adapters"][0]["loadedWorkers"] == 1


@pytest.mark.parametrize(
    ("code", "template", "reason"),
    [
        (Code.ADAPTER_FAILED, "of-other-arguments", ""),
        (Code.PATH_REFUSED, "of-other-arguments", "PathRefused"),
        (Code.ADAPTER_FAILED, None, "AdapterFailed"),
    ],
)
def test_an_engine_that_a_new_template_replaces_rejects_no_adapter(
    code: Code, template: str | None, reason: str
) -> None:
    """An adapter that comes with --enable-lora fails in every engine without it."""
    broken = workers.worker(0, adapters=[failing(POET, code)])
    if template is not None and broken.pod is not None:
        broken = replace(broken, pod=replace(broken.pod, template_hash=template))

    status = status_for(seen(broken))

    (poet,) = status.adapters
    told = {c.type: c.reason for c in status.conditions}
    assert (poet.loaded_workers, poet.reason) == (0, reason)
    assert told.get("Degraded") == ("AdaptersFailed" if reason else None)
    assert "WeightsSynced" in told


def test_a_fleet_is_not_done_before_its_adapters_are_loaded() -> None:
    lacking = {c.type: c.reason for c in status_for(seen(workers.worker(0))).conditions}
    done = {c.type for c in status_for(seen(workers.worker(0, adapters=[loaded(POET)]))).conditions}

    assert lacking["Reconciling"] == "LoadingAdapters"
    assert done == {"Ready", "WeightsSynced"}


def test_each_change_of_an_adapter_s_state_has_one_event() -> None:
    lacking = status_for(seen(workers.worker(0)))
    broken = status_for(seen(workers.worker(0, adapters=[failing(POET, Code.PATH_REFUSED)])))
    done = status_for(seen(workers.worker(0, adapters=[loaded(POET)])))

    assert [e.reason for e in events.between(lacking, broken)] == ["AdapterFailed"]
    assert events.between(broken, broken) == []
    assert [e.reason for e in events.between(broken, done)] == ["AdapterLoaded"]
    assert events.between(done, done) == []


def test_a_model_fleet_comes_to_rest_with_its_adapters() -> None:
    rested = fleets.at_rest(
        fleets.world({"replicas": 2, "weightVersion": "step-1", "adapters": [POET, CRITIC]})
    )

    assert all(
        lora.is_loaded(worker, one)
        for worker in rested.workers
        for one in declared(rested.fleet.spec.adapters)
    )
