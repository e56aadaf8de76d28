"""How old what is served may be: which numbers are compared, and with which."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_operator.core.model.actions import MarkPod
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.version_order import skew, stale
from rlfleet_operator.core.simulation.model_fleet import run
from rlfleet_operator.core.simulation.preview import preview
from rlfleet_operator.core.status.conditions import verdicts
from rlfleet_operator.core.trainer.models import Fault, Refusal, demand_free
from tests import fleets, workers
from tests.unit.rlfleet_operator.core.strategy.test_rolling import (
    asking,
    at_rest,
    fleet,
    stepped,
    versions,
)

BOUNDS = {"maxSkew": 5, "onViolation": "Unready"}


def bounded(seen: World, **bounds: Any) -> World:
    made = fleets.fleet({"staleness": bounds}).spec.staleness
    return fleets.asking(seen, staleness=made)


def serving(*proved: str, status: dict[str, Any] | None = None, **spec: Any) -> World:
    made = [workers.worker(n, proved=version) for n, version in enumerate(proved)]
    return workers.world(*made, status=status, **spec)


def least_ready(seen: World) -> int:
    """Return how few workers are marked ready at once, from now to the end."""
    return min(
        sum(bool(w.pod and w.pod.weights_ready) for w in step.world.workers)
        for step in run(seen, {})
    )


def withdrawn(seen: World) -> list[str]:
    return [a.message for a in plan(seen).actions if isinstance(a, MarkPod) and not a.ready]


@pytest.mark.parametrize("rollout", [{}, {"strategy": "Canary"}, {"strategy": "Barrier"}], ids=str)
def test_a_fleet_that_goes_back_keeps_its_workers_ready(rollout: dict[str, Any]) -> None:
    seen = at_rest(asking(bounded(fleet(), **BOUNDS), "step-120"))
    back = asking(seen, "step-110", **rollout)
    few = 0 if rollout.get("strategy") == "Barrier" else 3

    assert least_ready(back) >= few
    assert versions(at_rest(back)) == ["step-110"] * 4


@pytest.mark.parametrize("name", ["step-3", "b-3"])
def test_a_new_run_that_begins_low_keeps_its_workers_ready(name: str) -> None:
    seen = at_rest(stepped(bounded(fleet(), **BOUNDS), "step-120", 120))
    other = stepped(seen, name, 3, run="b")

    assert least_ready(other) == 3 + 1
    assert versions(at_rest(other)) == [name] * 4


def test_a_rollback_keeps_workers_with_the_old_version_ready() -> None:
    record = workers.recorded("step-110", "Updating", asked="step-120", reason="Rollback")
    seen = serving(
        "step-110",
        "step-120",
        status=record | {"target": "step-120"},
        weightVersion="step-120",
        staleness=BOUNDS,
    )

    assert stale(seen) == {}
    assert withdrawn(seen) == []


def test_a_straggler_is_stale_behind_where_the_fleet_goes() -> None:
    record = workers.recorded("step-110", "Updating")
    seen = serving(
        "step-100",
        "step-110",
        "step-120",
        status=record,
        weightVersion="step-110",
        staleness=BOUNDS,
    )

    assert list(stale(seen)) == ["qwen-0"]
    assert "is 10 steps behind" in stale(seen)["qwen-0"]


def test_versions_that_a_trainer_loads_by_itself_are_compared_by_their_names() -> None:
    seen = serving("step-1", "step-9", weightVersion=None, staleness=BOUNDS)

    assert list(stale(seen)) == ["qwen-0"]
    assert skew(seen) == 9 - 1


def changing(steps: tuple[int | None, int | None], *, history_limit: int = 10) -> World:
    """Return a fleet that goes from ckpt-7 to ckpt-8, one worker of two having arrived."""
    seen = fleets.asking(fleet(2), history_limit=history_limit)
    seen = stepped(at_rest(stepped(seen, "ckpt-7", steps[0])), "ckpt-8", steps[1])
    mixed = (s.world for s in run(seen, {}) if len(set(versions(s.world)) - {None}) > 1)
    return next(mixed)


@pytest.mark.parametrize(
    ("steps", "history_limit", "expected"),
    [
        ((700, 800), 10, 100),
        ((700, 800), 0, 1),
        ((None, 800), 10, 1),
        ((700, None), 10, 1),
        ((None, None), 10, 1),
    ],
    ids=[
        "both were declared",
        "only one is remembered",
        "only the new one was declared",
        "only the old one was declared",
        "none was declared",
    ],
)
def test_a_declared_step_is_never_compared_with_the_number_of_a_name(
    steps: tuple[int | None, int | None], history_limit: int, expected: int
) -> None:
    seen = changing(steps, history_limit=history_limit)
    at, below = bounded(seen, maxSkew=expected), bounded(seen, maxSkew=expected - 1)

    assert skew(seen) == expected
    assert stale(at) == {}
    assert {why.partition(" (")[0] for why in stale(below).values()} == {
        f"ckpt-7 is {expected} steps behind the newest version served"
    }


def test_a_rollback_s_step_is_not_that_of_the_version_it_goes_back_to() -> None:
    history = [
        {"id": 2, "to": "ckpt-8", "step": 800, "runId": "a"},
        {"id": 1, "to": "ckpt-7", "step": 700, "runId": "a"},
    ]
    ended = {"result": "Completed", "startedAt": "2023-11-14T22:13:20Z", "seconds": 1}
    back = {"id": 3, "to": "ckpt-7", "step": 800, "runId": "a", "reason": "Rollback"}
    record = workers.recorded("ckpt-9", "Updating", step=900, runId="a")
    record["history"] = [one | ended for one in (back, *history)]
    seen = serving("ckpt-7", "ckpt-9", status=record, weightVersion="ckpt-9")
    weights = seen.fleet.spec.weights
    assert weights is not None
    declared = weights.model_copy(update={"run_id": "a", "step": 900})

    assert skew(fleets.asking(seen, weights=declared)) == 200


@pytest.mark.parametrize(
    ("lowest", "expected"),
    [("ckpt-8", ["qwen-0"]), ("ckpt-7", []), ("ckpt-100", ["qwen-0", "qwen-1"])],
)
def test_the_lowest_version_is_compared_by_the_numbers_of_names(
    lowest: str, expected: list[str]
) -> None:
    record = workers.recorded("ckpt-8", "Updating", step=800)
    seen = serving("ckpt-7", "ckpt-8", "final", status=record, staleness={"minVersion": lowest})

    assert list(stale(seen)) == expected


def test_only_serving_workers_are_stale() -> None:
    seen = serving("step-1", "step-9", weightVersion="step-9", staleness={"maxSkew": 1})
    gone = replace(seen, workers=(replace(seen.workers[0], reachable=False), seen.workers[1]))

    assert list(stale(seen)) == ["qwen-0"]
    assert stale(gone) == {}


@pytest.mark.parametrize(
    ("target", "on_violation", "reason"),
    [
        ("step-9", "Unready", "StaleTarget"),
        ("step-9", "Warn", None),
        ("step-10", "Unready", None),
        ("hotfix", "Unready", None),
    ],
)
def test_a_stale_target_is_reported_and_takes_no_worker_out_of_traffic(
    target: str, on_violation: str, reason: str | None
) -> None:
    bounds = {"minVersion": "step-10", "onViolation": on_violation}
    seen = at_rest(asking(bounded(fleet(), **bounds), "step-12"))
    asked = asking(seen, target)

    few = least_ready(asked)
    ended = at_rest(asked)

    told = {one.type: one for one in verdicts(ended, None)}
    assert (told["Stalled"].reason if "Stalled" in told else None) == reason
    assert versions(ended) == ["step-12" if reason else target] * 4
    if reason is not None:
        assert few == len(ended.workers)
        assert "step-9 is older than staleness.minVersion step-10" in told["Stalled"].message
        assert preview(asked) == [f"refused: {told['Stalled'].message}"]
        assert "Reconciling" not in told


def test_a_trainer_s_request_for_a_stale_version_is_rejected() -> None:
    made = fleets.fleet({"weightVersion": None, "staleness": BOUNDS | {"minVersion": "step-10"}})

    with pytest.raises(Refusal) as refused:
        demand_free(made, {}, "step-9")

    assert refused.value.fault is Fault.STALE_TARGET
    demand_free(made, {}, "step-10")
