"""A fleet that follows its trainer: it arrives, it never goes back, and no trainer outruns it."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rlfleet_contract.version_order import number_of
from rlfleet_contract.worker.report import Newest
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.following import is_ahead
from rlfleet_operator.core.simulation.model_fleet import carried_out, recorded, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from tests import fleets

LONG = settings(max_examples=40, deadline=None)
"""Each example is a hundred passes."""
EFFECTS = {"good": Effect.GOOD, "refused": Effect.REFUSED, "bad": Effect.BREAKS}
SPECS = [
    {},
    {"maxUnavailable": "100%"},
    {"strategy": "Barrier"},
    {"strategy": "Canary", "canary": {"holdSeconds": 100}},
    {"partition": 1},
    {"onFailure": "Rollback"},
    {"onFailure": "Hold"},
]


def start(replicas: int, rollout: Mapping[str, object]) -> World:
    weights = {"path": "/weights/{version}", "follow": "Latest"}
    spec = {"replicas": replicas, "weights": weights, "rollout": dict(rollout)}
    return fleets.at_rest(fleets.world(spec))


def seen_by(seen: World, versions: list[str]) -> World:
    """Return the world in which each worker sees one of these, the first the first, and so on."""

    def looking(worker: Worker) -> Worker:
        if worker.report is None or not versions:
            return worker
        version = versions[min(worker.ordinal, len(versions) - 1)]
        newest = Newest(version=version, found_at=seen.moment)
        return replace(worker, report=worker.report.model_copy(update={"newest": newest}))

    return replace(seen, workers=tuple(map(looking, seen.workers)))


def passed(seen: World, versions: list[str], fates: Mapping[str, Effect]) -> World:
    """Return the world after one pass."""
    seen = seen_by(settled(seen), versions)
    step = plan(seen)
    after = recorded(seen, step)
    before, now = seen.fleet.status.followed, after.fleet.status.followed
    assert before is None or (now is not None and (now == before or is_ahead(now, before)))
    for action in step.actions:
        after = carried_out(after, action, fates)
    return replace(settled(after), moment=after.moment + 20)


def served(seen: World) -> set[str | None]:
    return {worker.proved for worker in seen.desired if worker.ordinal >= partition(seen)}


def partition(seen: World) -> int:
    return int(seen.fleet.spec.rollout.partition)


@LONG
@given(
    replicas=st.integers(1, 4),
    rollout=st.sampled_from(SPECS),
    published=st.lists(st.tuples(st.sampled_from(sorted(EFFECTS)), st.integers(0, 6)), max_size=6),
    lags=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_the_fleet_comes_to_the_newest_version_and_never_goes_back(
    replicas: int,
    rollout: dict[str, object],
    published: list[tuple[str, int]],
    lags: list[int],
) -> None:
    seen, fates, names = start(replicas, rollout), {"base": Effect.GOOD}, list[str]()
    for number, (fate, passes) in enumerate([*published, ("good", 0)], start=1):
        names.append(f"step-{number}")
        fates[names[-1]] = EFFECTS[fate]
        for _ in range(passes):
            views = [names[max(0, len(names) - 1 - lag)] for lag in lags]
            seen = passed(seen, views, fates)
    for _ in range(60):
        seen = passed(seen, names[-1:], fates)

    assert seen.fleet.target == names[-1]
    if partition(seen) < replicas:
        assert served(seen) == {names[-1]}


@LONG
@given(replicas=st.integers(1, 4), rollout=st.sampled_from(SPECS[:4]))
def test_a_trainer_that_publishes_at_each_pass_does_not_keep_the_fleet_from_arriving(
    replicas: int, rollout: dict[str, object]
) -> None:
    seen, arrived = start(replicas, rollout), set[str]()
    for number in range(1, 61):
        seen = passed(seen, [f"step-{number}"], {})
        if len(versions := served(seen)) == 1 and (version := versions.pop()) is not None:
            arrived.add(version)

    numbers = sorted(number_of(version) or 0 for version in arrived)
    assert len(numbers) > 3
    assert numbers[-1] > 40


def test_a_pointer_to_another_run_takes_the_fleet_back() -> None:
    seen = start(2, {})
    for _ in range(30):
        seen = passed(seen, ["step-9"], {})

    def forked(worker: Worker, run: str) -> Worker:
        assert worker.report is not None
        newest = Newest(version="step-2", run=run, found_at=0)
        return replace(worker, report=worker.report.model_copy(update={"newest": newest}))

    for run, expected in (("", "step-9"), ("b", "step-2")):
        for _ in range(30):
            seen = replace(seen, workers=tuple(forked(w, run) for w in seen.workers))
            step = plan(seen)
            after = recorded(seen, step)
            for action in step.actions:
                after = carried_out(after, action, {})
            seen = replace(settled(after), moment=after.moment + 20)
        assert served(seen) == {expected}
