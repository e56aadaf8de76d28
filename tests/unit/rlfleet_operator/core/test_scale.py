"""A pass costs as much more as there are more workers, and not the square of it."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from tests import workers
from tests.proofs import proof


def _amid_a_rollout(size: int, spec: dict[str, Any]) -> World:
    """Return a world in which half of the workers have changed and all others may."""
    new = [
        workers.worker(ordinal, proved="step-2", prepared="step-2", proof=proof("step-2"))
        for ordinal in range(size // 2)
    ]
    old = [
        workers.worker(ordinal, prepared="step-2", proof=proof("step-1"))
        for ordinal in range(size // 2, size)
    ]
    status = workers.recorded("step-2", "Updating")
    return workers.world(*new, *old, status=status, weightVersion="step-2", **spec)


def _calls(work: Callable[[], object]) -> int:
    """Count what is called: time is another on every machine, this is not."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "spec",
    [
        {"rollout": {"maxUnavailable": "25%"}},
        {"rollout": {"maxUnavailable": "100%"}},
        {"rollout": {"strategy": "Barrier"}},
        {"rollout": {"strategy": "Canary", "canary": {"count": "90%"}}},
        {"rollout": {"partition": "30%"}},
        {"staleness": {"maxSkew": 0, "onViolation": "Unready"}},
    ],
    ids=str,
)
def test_eight_times_the_workers_cost_about_eight_times_the_calls(spec: dict[str, Any]) -> None:
    def cost(size: int) -> int:
        world = _amid_a_rollout(size, spec)
        return _calls(lambda: status_of(world, plan(world).rollout))

    assert cost(320) < 10 * cost(40)


def _with_adapters(count: int) -> World:
    """Return a world in which each worker serves as many adapters, the last one not yet."""
    names = [f"a{number}" for number in range(count)]
    loaded = [
        {"name": n, "version": "v", "path": f"/a/{n}", "is_loaded": True, "is_declared": True}
        for n in names[:-1]
    ]
    spec = [{"name": n, "version": "v", "path": "/a/" + n} for n in names]
    engine = {"args": ["--enable-lora"]}
    some = [workers.worker(ordinal, adapters=loaded) for ordinal in range(20)]
    return workers.world(*some, adapters=spec, engine=engine)


def test_eight_times_the_adapters_cost_about_eight_times_the_calls() -> None:
    def cost(count: int) -> int:
        world = _with_adapters(count)

        def work() -> None:
            step = plan(world)
            status_of(world, step.rollout)

        return _calls(work)

    assert cost(64) < 12 * cost(8)
