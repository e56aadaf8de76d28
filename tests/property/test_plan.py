"""Cut anywhere, observe again, plan again: the same end, and never a broken promise on the way."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout import budget
from rlfleet_operator.core.simulation.model_fleet import carried_out, recorded, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from tests import fleets

FATES = {"good": Effect.GOOD, "other": Effect.GOOD, "missing": Effect.REFUSED, "bad": Effect.BREAKS}
LIMITS = st.sampled_from([1, 2, 3, "25%", "50%", "100%"])
QUICK = settings(
    max_examples=250,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
Choose = Callable[[int], int]
"""How many of so many actions are carried out before the operator dies."""


def tried_while_serving(seen: World) -> int:
    """Return how many workers that took traffic have lost their weights to a version."""
    doubted = [w for w in seen.desired if w.stage is Stage.DOUBT]
    return sum(1 for w in doubted if w.pod and w.pod.weights_ready)


def nothing_tried_beyond_the_limit(before: World, after: World) -> None:
    """Assert that what happened took at most as many out as allowed.

    A fleet that is made smaller may have more out than its new limit: it must not add to them.
    """
    spec = after.fleet.spec
    limit = budget.resolve(spec.rollout.max_unavailable, spec.replicas)

    assert tried_while_serving(after) <= max(limit, tried_while_serving(before))


def promises_hold(seen: World) -> None:
    """Assert what must be true at every moment."""
    for worker in seen.workers:
        if worker.pod and worker.pod.ready:
            assert worker.is_open
            assert worker.proved is not None
            assert FATES.get(worker.proved, Effect.GOOD) is Effect.GOOD


def status_is_true(seen: World) -> None:
    """Assert what must be true of a status just written."""
    status = fleets.readable(seen.fleet.status)
    serving = {w.proved for w in seen.workers if w.pod and w.pod.ready}

    assert status.serving == (serving.pop() if len(serving) == 1 else "")
    if any(c.type == "WeightsSynced" and c.status == "True" for c in status.conditions):
        proved = {w.proved for w in seen.desired}
        assert proved <= {status.target} if status.target else len(proved) < 2


def converged(seen: World, cut: Choose, *, passes: int = 400) -> World:
    """Return the end; in each pass only a prefix of the plan is carried out."""
    for _ in range(passes):
        seen = settled(seen)
        promises_hold(seen)
        step = plan(seen)
        after = recorded(seen, step)
        status_is_true(after)
        carried = cut(len(step.actions))
        for action in step.actions[:carried]:
            after = settled(carried_out(after, action, FATES))
            promises_hold(after)
            nothing_tried_beyond_the_limit(seen, after)
        if carried == len(step.actions) and settled(after) == seen:
            return seen
        # What a worker answered is forgotten with the operator: it is observed again.
        seen = replace(after, moment=after.moment + 60)
    raise AssertionError(f"no end: {seen}")


def whole(count: int) -> int:
    """Carry out everything."""
    return count


def cut_at(cuts: list[int]) -> Choose:
    """Cut the first passes there, and carry out the rest."""
    left = iter(cuts)
    return lambda count: min(count, next(left, count))


def start(replicas: int, limit: int | str) -> World:
    """Return a fleet at rest that serves ``other``."""
    spec = {
        "replicas": replicas,
        "weightVersion": "other",
        "rollout": {"maxUnavailable": limit},
    }
    return fleets.at_rest(fleets.world(spec))


@QUICK
@given(
    replicas=st.integers(0, 6),
    limit=LIMITS,
    target=st.sampled_from(sorted(FATES)),
    cuts=st.lists(st.integers(0, 6), max_size=12),
)
def test_a_rollout_cut_anywhere_ends_as_one_that_was_not(
    replicas: int, limit: int | str, target: str, cuts: list[int]
) -> None:
    asked = fleets.asking(start(replicas, limit), weight_version=target)

    cut = converged(asked, cut_at(cuts))
    straight = converged(asked, whole)

    if FATES[target] is Effect.BREAKS:
        # How many of the first batch tried it before it was known to break is chance.
        tried = versions(cut).count(None)
        assert set(versions(cut)) <= {"other", None}
        assert min(1, replicas) <= tried <= budget.resolve(limit, replicas)
    else:
        assert versions(cut) == versions(straight)
        assert set(versions(cut)) <= {target if FATES[target] is Effect.GOOD else "other"}


@QUICK
@given(limit=LIMITS, data=st.data())
def test_whatever_the_user_and_the_nodes_do_the_fleet_ends_as_declared(
    limit: int | str, data: st.DataObject
) -> None:
    seen = start(3, limit)
    for _ in range(data.draw(st.integers(1, 5))):
        seen = disturbed(seen, data)
        seen = some_passes(seen, data)
    target, replicas = data.draw(st.sampled_from(["good", "other"])), data.draw(st.integers(0, 5))
    seen = fleets.asking(seen, weight_version=target, replicas=replicas)

    end = converged(seen, whole)

    assert versions(end) == [target] * replicas
    assert all(w.pod and w.pod.ready for w in end.workers)


@QUICK
@given(limit=LIMITS, data=st.data())
def test_planning_twice_decides_the_same(limit: int | str, data: st.DataObject) -> None:
    seen = settled(disturbed(start(4, limit), data))

    assert plan(seen) == plan(seen)


def versions(seen: World) -> list[str | None]:
    return [worker.proved for worker in seen.desired]


def disturbed(seen: World, data: st.DataObject) -> World:
    """Return the world after one thing that users, nodes or engines do."""
    what = data.draw(st.sampled_from(["version", "scale", "pod", "engine", "template"]))
    if what == "version":
        return fleets.asking(seen, weight_version=data.draw(st.sampled_from(sorted(FATES))))
    if what == "scale":
        return fleets.asking(seen, replicas=data.draw(st.integers(0, 5)))
    if what == "template":
        return replace(seen, template_hash=data.draw(st.sampled_from("abc")))
    if not seen.workers:
        return seen
    place = data.draw(st.integers(0, len(seen.workers) - 1))
    victim = seen.workers[place]
    hurt = (
        replace(victim, report=None) if what == "engine" else replace(victim, report=None, pod=None)
    )
    return replace(seen, workers=(*seen.workers[:place], hurt, *seen.workers[place + 1 :]))


def some_passes(seen: World, data: st.DataObject) -> World:
    """Return the world after a few passes of which any part was carried out."""
    for _ in range(data.draw(st.integers(0, 4))):
        seen = settled(seen)
        promises_hold(seen)
        step = plan(seen)
        seen = begun = recorded(seen, step)
        for action in step.actions[: data.draw(st.integers(0, len(step.actions)))]:
            seen = settled(carried_out(seen, action, FATES))
            nothing_tried_beyond_the_limit(begun, seen)
    return replace(seen, moment=seen.moment + 60)
