"""Whatever is asked for while commands are under way: promises hold, and no worker is left over.

``python -m tests.property.test_walks SEEDS`` walks on, and names the seeds that break a promise.
"""

import sys
from random import Random

import pytest

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.crd.fleet_spec import Follow
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from tests.model.local import ViolationError
from tests.model.walk import CrowdedWalk, Walk

AT_REST = {Stage.OPEN, Stage.DOUBT, Stage.CLOSED}


def walked(seed: int) -> None:
    """Walk, come to rest, and ask for a good version."""
    walk = Walk(Random(seed))  # noqa: S311 - no secret
    assert walk.come_to_rest()
    disturbed(walk, (1, 14), most=4)


def walked_in_a_crowd(seed: int) -> None:
    """The same of more workers, from any beginning."""
    walk = CrowdedWalk(Random(seed))  # noqa: S311 - no secret
    walk.come_to_rest()
    disturbed(walk, (3, 20), most=8)


def disturbed(walk: Walk, times: tuple[int, int], *, most: int) -> None:
    """Disturb a walk so often, and end with at most so many workers."""
    for _ in range(walk.chance.randint(*times)):
        walk.disturb()
        for _ in range(walk.chance.randint(0, 60)):
            step(walk)
    if walk.come_to_rest():
        none_is_left(walk)
    ends_as_asked(walk, walk.chance.randint(1, most))


def step(walk: Walk) -> None:
    """Let one thing happen, or the operator pass."""
    choice = walk.chance.random()
    if choice < 0.2:
        walk.make_pass()
    elif choice < 0.25:
        walk.land()
    elif walk.alive:
        walk.happen(walk.chance.choice(walk.alive))
    walk.moment += walk.chance.choice([0, 0, 0.5, 1, 10])


def none_is_left(walk: Walk) -> None:
    """Assert that no worker is left in a change, and that a synced fleet is synced."""
    world = walk.world()
    assert {w.stage for w in world.workers if w.pod and not w.pod.terminating} <= AT_REST
    told = {one.type: one.status for one in walk.fleet.status.conditions}
    target = walk.fleet.target
    if told["WeightsSynced"] == "True":
        proved = {w.proved for w in world.desired}
        assert len(proved) < 2 if target is None else proved <= {target}


def ends_as_asked(walk: Walk, count: int) -> None:
    """Assert that a good version reaches every worker, whatever was before."""
    rules = RolloutSpec.model_validate({"restartId": "last"})
    weights = walk.weights().model_copy(update={"follow": Follow.NEVER})
    walk.ask(replicas=count, weight_version="a-2", rollout=rules, weights=weights)
    assert walk.come_to_rest()
    workers = [walk.places[ordinal].worker for ordinal in range(count)]
    assert [(w.engine.holds, w.engine.is_open) for w in workers] == [("a-2", True)] * count
    assert all(w.is_ready for w in workers)
    told = {one.type: one.status for one in walk.fleet.status.conditions}
    assert told == {"Ready": "True", "WeightsSynced": "True"}


@pytest.mark.parametrize("seed", [*range(20), 3650, 3950])
def test_a_fleet_that_is_asked_for_much_at_once_keeps_its_promises(seed: int) -> None:
    walked(seed)


@pytest.mark.parametrize("seed", [*range(4), 513, 665, 7251, 7870, 7896, 9462, 10309])
def test_a_larger_fleet_keeps_them_too(seed: int) -> None:
    walked_in_a_crowd(seed)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        for one in (walked, walked_in_a_crowd):
            try:
                one(number)
            except (AssertionError, ViolationError) as error:
                kind, told = type(error).__name__, str(error)[:200]
                sys.stdout.write(f"{one.__name__} {number}: {kind}: {told}\n")
