"""Whatever the strategy: cut anywhere, patch anything, and no worker is left paused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.rollout import ENDED, PARTITIONED
from rlfleet_operator.core.simulation.model_fleet import carried_out, recorded, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from tests import fleets

FATES = {"good": Effect.GOOD, "other": Effect.GOOD, "missing": Effect.REFUSED, "bad": Effect.BREAKS}
QUICK = settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
Look = Callable[[World], None]

RULES = st.fixed_dictionaries(
    {
        "maxUnavailable": st.sampled_from([1, 2, "100%"]),
        "onFailure": st.sampled_from(["Quarantine", "Rollback", "Hold"]),
        "maxFailed": st.sampled_from([0, 1, "50%"]),
    }
)
STRATEGIES = st.one_of(
    st.just({"strategy": "Rolling"}),
    st.just({"strategy": "Barrier"}),
    st.builds(lambda n: {"strategy": "Canary", "canary": {"count": n}}, st.integers(1, 3)),
    st.builds(lambda n: {"strategy": "Rolling", "partition": n}, st.integers(1, 3)),
)


def start(replicas: int, rules: dict[str, Any]) -> World:
    """Return a fleet at rest that serves ``other``."""
    spec = {"replicas": replicas, "weightVersion": "other", "rollout": rules}
    seen = fleets.at_rest(fleets.world(spec))
    return replace(seen, moment=seen.moment + 60)


def no_worker_serves_unproved(seen: World) -> None:
    for worker in seen.workers:
        if worker.is_open:
            assert FATES.get(worker.proved or "", Effect.BREAKS) is Effect.GOOD
        if worker.pod and worker.pod.ready:
            # A worker that is routable and not open is in a change: its clients wait at the gate.
            assert worker.is_open or worker.is_changing


def ended(seen: World, cuts: list[int], look: Look, *, passes: int = 300) -> World:
    """Return the end; in the first passes only a prefix of the plan is carried out."""
    left = iter(cuts)
    for _ in range(passes):
        seen = settled(seen)
        look(seen)
        step = plan(seen)
        after = recorded(seen, step)
        carried = min(len(step.actions), next(left, len(step.actions)))
        for action in step.actions[:carried]:
            after = settled(carried_out(after, action, FATES))
            look(after)
        if carried == len(step.actions) and settled(after) == seen:
            return seen
        seen = replace(after, moment=after.moment + 60)
    raise AssertionError(f"no end: {seen}")


def no_worker_is_left_paused(seen: World) -> None:
    for worker in seen.workers:
        assert worker.stage in {Stage.OPEN, Stage.DOUBT, Stage.CLOSED}


CUTS = st.lists(st.integers(0, 4), max_size=12)


@QUICK
@given(rules=RULES, strategy=STRATEGIES, target=st.sampled_from(sorted(FATES)), cuts=CUTS)
def test_a_rollout_cut_anywhere_ends_with_no_worker_paused(
    rules: dict[str, Any], strategy: dict[str, Any], target: str, cuts: list[int]
) -> None:
    asked = fleets.asking(start(4, rules | strategy), weight_version=target)

    end = ended(asked, cuts, no_worker_serves_unproved)

    no_worker_is_left_paused(end)
    rollout = end.fleet.status.rollout
    assert rollout is not None
    assert rollout.phase in ENDED | {PARTITIONED, "Refused"}
    kept = int(strategy.get("partition", 0))
    if FATES[target] is Effect.GOOD:
        assert [w.proved for w in end.desired] == ["other"] * kept + [target] * (4 - kept)
    elif FATES[target] is Effect.REFUSED or rules["onFailure"] == "Rollback":
        assert [w.proved for w in end.desired] == ["other"] * 4
    else:
        assert {w.proved for w in end.desired} <= {"other", None}


@QUICK
@given(rules=RULES, target=st.sampled_from(["good", "bad"]), cuts=CUTS)
def test_a_barrier_cut_anywhere_serves_no_two_versions_at_once(
    rules: dict[str, Any], target: str, cuts: list[int]
) -> None:
    def look(seen: World) -> None:
        no_worker_serves_unproved(seen)
        assert len({w.proved for w in seen.workers if w.is_open}) <= 1

    asked = fleets.asking(start(3, rules | {"strategy": "Barrier"}), weight_version=target)

    ended(asked, cuts, look)


@QUICK
@given(rules=RULES, count=st.integers(1, 3), cuts=CUTS)
def test_a_canary_that_fails_pauses_no_other_worker(
    rules: dict[str, Any], count: int, cuts: list[int]
) -> None:
    def look(seen: World) -> None:
        for worker in seen.workers[count:]:
            assert worker.stage is Stage.OPEN

    canary = {"strategy": "Canary", "canary": {"count": count}}
    asked = fleets.asking(start(4, rules | canary), weight_version="bad")

    ended(asked, cuts, look)


@QUICK
@given(count=st.integers(1, 3), sizes=st.lists(st.integers(0, 6), max_size=5), cuts=CUTS)
def test_no_worker_takes_what_was_not_promoted_whatever_the_fleet_s_size(
    count: int, sizes: list[int], cuts: list[int]
) -> None:
    def look(seen: World) -> None:
        for worker in seen.workers[count:]:
            assert worker.proved != "good"

    canary = {"strategy": "Canary", "canary": {"count": count, "promote": "Manual"}}
    seen = fleets.asking(start(4, canary), weight_version="good")
    seen = ended(seen, cuts, look)
    for replicas in sizes:
        seen = ended(fleets.asking(seen, replicas=replicas), cuts, look)


@QUICK
@given(strategy=STRATEGIES, data=st.data())
def test_the_last_of_many_words_holds(strategy: dict[str, Any], data: st.DataObject) -> None:
    """Patches of version, strategy, pause and partition in mid rollout: the last one counts."""
    seen = start(3, strategy)
    for _ in range(data.draw(st.integers(1, 4))):
        rules = data.draw(STRATEGIES) | {"paused": data.draw(st.booleans())}
        rules |= {"onFailure": data.draw(st.sampled_from(["Quarantine", "Rollback"]))}
        made = RolloutSpec.model_validate(rules)
        version = data.draw(st.sampled_from(sorted(FATES)))
        seen = fleets.asking(seen, weight_version=version, rollout=made)
        for _ in range(data.draw(st.integers(0, 5))):
            seen = settled(seen)
            step = plan(seen)
            seen = recorded(seen, step)
            for action in step.actions[: data.draw(st.integers(0, len(step.actions)))]:
                seen = settled(carried_out(seen, action, FATES))
                no_worker_serves_unproved(seen)
            seen = replace(seen, moment=seen.moment + 60)
    last = RolloutSpec.model_validate({"restartId": "last"})
    seen = fleets.asking(seen, weight_version="good", rollout=last)

    end = ended(seen, [], no_worker_serves_unproved)

    assert [w.proved for w in end.desired] == ["good"] * 3
    no_worker_is_left_paused(end)
