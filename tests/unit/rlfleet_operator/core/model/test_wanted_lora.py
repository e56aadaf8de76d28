"""What a worker begins with that its trainers do not know yet: the adapters of the others."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core import timers
from rlfleet_operator.core.model.actions import LoadAdapter, MarkPod, UnloadAdapter
from rlfleet_operator.core.model.wanted_lora import WantedLoRA
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.core.strategy import lora
from tests import fleets, workers

MODEL = "qwen"
OLD, NEW = "0" * 64, "1" * 64


def of_trainer(name: str = "poet", version: str = "step-1", **fields: Any) -> AdapterReport:
    """Return the report of a worker at which a trainer has loaded an adapter."""
    digest = NEW if version == "step-2" else OLD
    told = {"name": name, "version": version, "path": f"/weights/{version}", "digest": digest}
    return AdapterReport.model_validate(told | {"is_loaded": True} | fields)


def serving(ordinal: int, *known: AdapterReport) -> Worker:
    return workers.worker(ordinal, adapters=list(known))


def joining(ordinal: int, *known: AdapterReport) -> Worker:
    """Return a worker that has opened its gate and takes no traffic yet."""
    worker = serving(ordinal, *known)
    assert worker.pod is not None
    return replace(worker, pod=replace(worker.pod, ready=False, weights_ready=False))


def seen(*known: Worker, **spec: Any) -> World:
    status = workers.recorded("step-1", "Completed")
    return workers.world(*known, status=status, **spec)


def asked(world: World) -> list[tuple[str, str, str | None]]:
    """Return the workers with the version and digest that each must load."""
    calls = [a for a in plan(world).actions if isinstance(a, LoadAdapter | UnloadAdapter)]
    assert all(isinstance(call, LoadAdapter) for call in calls)
    return [(c.worker, c.version, c.inherited) for c in calls if isinstance(c, LoadAdapter)]


def marked_ready(world: World, name: str) -> bool | None:
    marks = [a for a in plan(world).actions if isinstance(a, MarkPod) and a.name == name]
    return marks[0].ready if marks else None


def failing(inherited: WantedLoRA, code: Code) -> AdapterReport:
    problem = Problem.of(code, "why", operation=lora.operation_of(inherited))
    return AdapterReport(name=inherited.name, problem=problem)


def test_a_worker_that_joins_is_brought_what_the_others_serve() -> None:
    world = seen(serving(0, of_trainer()), joining(1))

    assert asked(world) == [("qwen-1", "step-1", OLD)]
    assert marked_ready(world, "qwen-1") is None


def test_it_takes_traffic_then_and_is_its_trainer_s() -> None:
    loaded = seen(serving(0, of_trainer()), joining(1, of_trainer()))
    swapped = seen(serving(0, of_trainer(version="step-2")), joining(1, of_trainer()))

    assert (asked(loaded), marked_ready(loaded, "qwen-1")) == ([], True)
    assert (asked(swapped), marked_ready(swapped, "qwen-1")) == ([], True)


def test_a_worker_in_traffic_is_left_to_its_trainer() -> None:
    assert asked(seen(serving(0, of_trainer()), serving(1))) == []


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        (["step-2", "step-1", "step-2"], "step-2"),
        (["step-1", "step-2"], "step-1"),
        ([None, None, "step-1"], None),
        ([], None),
    ],
)
def test_it_is_what_most_of_them_serve(others: list[str | None], wanted: str | None) -> None:
    known = [
        serving(i, *([of_trainer(version=one)] if one else [])) for i, one in enumerate(others)
    ]

    calls = asked(seen(*known, joining(len(known))))

    assert [version for _, version, _ in calls] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    "stage", [Stage.PAUSED, Stage.LOADING, Stage.PROVED, Stage.CLOSED, Stage.DOUBT, Stage.DOWN]
)
def test_what_a_worker_has_counts_while_it_does_not_serve(stage: Stage) -> None:
    known = [of_trainer(is_loaded=False), of_trainer("critic", is_loaded=False)]
    other = workers.worker(0, stage, adapters=known)

    assert marked_ready(seen(other, joining(1)), "qwen-1") is None
    assert marked_ready(seen(other, joining(1, of_trainer())), "qwen-1") is None
    assert marked_ready(seen(other, joining(1, *known)), "qwen-1") is True


def answered(worker: Worker, *, at: float, open_since: float = 1.0) -> Worker:
    return replace(worker, answered_at=at, open_since=open_since)


def with_lora(*known: Worker, args: tuple[str, ...] = ("--enable_lora",), **spec: Any) -> World:
    """Return the world of these workers, whose pods are of its template."""
    world = seen(*known, engine={"args": list(args)}, **spec)
    assert known[0].pod is not None
    return replace(world, template_hash=known[0].pod.template_hash)


@pytest.mark.parametrize(
    ("at", "args", "is_waited_for"),
    [(6.9, ("--enable-lora",), True), (7.0, ("--enable-lora",), False), (6.9, (), False)],
)
def test_it_waits_until_each_peer_has_answered_since_it_opened(
    at: float, args: tuple[str, ...], *, is_waited_for: bool
) -> None:
    joiner = answered(joining(2), at=9, open_since=7)
    others = [serving(n, of_trainer()) for n in range(2)]
    world = with_lora(answered(others[0], at=at), answered(others[1], at=9), joiner, args=args)

    # Nothing is loaded before, either: their last reports may be outdated.
    assert asked(world) == ([] if is_waited_for else [("qwen-2", "step-1", OLD)])
    loaded = with_lora(
        *world.workers[:2], answered(joining(2, of_trainer()), at=9, open_since=7), args=args
    )
    assert marked_ready(loaded, "qwen-2") is (None if is_waited_for else True)
    assert timers.due_in_s(world) == (1 if is_waited_for else None)


def test_it_does_not_wait_if_the_spec_names_adapters() -> None:
    poet = {"name": "poet", "path": "/weights/poet/{version}", "version": "v1"}
    joiner = answered(joining(1), at=9, open_since=7)
    world = with_lora(answered(serving(0), at=1), joiner, adapters=[poet])

    assert not lora.awaits_reports(joiner, world)


def test_a_peer_that_does_not_answer_is_not_waited_for() -> None:
    silent = replace(answered(serving(0), at=1), reachable=False)
    world = with_lora(silent, answered(joining(1), at=9, open_since=7))

    assert marked_ready(world, "qwen-1") is True


def test_what_a_pod_has_that_goes_is_not_inherited() -> None:
    going = serving(0, of_trainer())
    assert going.pod is not None
    other = replace(going, pod=replace(going.pod, terminating=True))

    assert asked(seen(other, joining(1))) == []


@pytest.mark.parametrize("nothing", [{"version": None}, {"path": None}, {"digest": None}])
def test_what_never_was_loaded_is_not_inherited(nothing: dict[str, Any]) -> None:
    assert asked(seen(serving(0, of_trainer(**nothing)), joining(1))) == []


def test_what_the_spec_named_is_not_inherited() -> None:
    world = seen(serving(0, of_trainer(is_declared=True)), joining(1))

    calls = [a for a in plan(world).actions if isinstance(a, LoadAdapter | UnloadAdapter)]

    assert [type(call) for call in calls] == [UnloadAdapter]


def test_the_spec_goes_before_what_trainers_loaded() -> None:
    poet = {"name": "poet", "path": "/weights/poet/{version}", "version": "v1"}

    calls = asked(seen(serving(0, of_trainer("critic")), joining(1), adapters=[poet]))

    assert calls == [("qwen-0", "v1", None), ("qwen-1", "v1", None)]


def test_an_adapter_that_cannot_be_loaded_does_not_keep_the_model_from_serving() -> None:
    (inherited,) = seen(serving(0, of_trainer())).inherited
    world = seen(serving(0, of_trainer()), joining(1, failing(inherited, Code.DIGEST_MISMATCH)))

    degraded = next(
        c for c in status_of(world, plan(world).rollout).conditions if c.type == "Degraded"
    )

    assert marked_ready(world, "qwen-1") is True
    assert degraded.reason == "AdaptersFailed"
    assert (
        "adapter poet step-1 failed to load on qwen-1 (failed loads: 1): DigestMismatch: why"
        in degraded.message
    )


def test_the_model_does_not_answer_in_the_place_of_one_that_has_its_name() -> None:
    (inherited,) = seen(serving(0, of_trainer(MODEL))).inherited
    joiner = joining(1, failing(inherited, Code.ADAPTER_FAILED))
    assert joiner.pod is not None
    unmarked = replace(joiner, pod=replace(joiner.pod, weights_ready=None))
    world = seen(serving(0, of_trainer(MODEL)), unmarked)

    (mark,) = [action for action in plan(world).actions if isinstance(action, MarkPod)]

    assert not mark.ready
    assert mark.message == f"adapter {MODEL} not loaded yet"


def test_a_model_fleet_that_grows_comes_to_rest_with_its_trainer_s_adapter() -> None:
    small = fleets.at_rest(fleets.world({"replicas": 1, "weightVersion": "step-1"}))
    told = fleets.changed(small, 0, adapters=[of_trainer()])

    rested = fleets.at_rest(fleets.asking(told, replicas=3))

    assert [
        [(one.version, one.is_declared) for one in worker.report.adapters]
        for worker in rested.workers
        if worker.report
    ] == [[("step-1", False)]] * 3
