"""The order of versions: steps within a run, and how old served versions may be."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rlfleet_contract.version_order import is_lower, number_of
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout.rollout import Reason
from rlfleet_operator.crd.rollout_spec import StalenessSpec

_MOST_STEPS = 2**53 - 1
"""The largest integer that status and every JSON reader can hold."""


class _Declared(NamedTuple):
    """The weights.runId and weights.step that a spec set for a version."""

    run: str = ""
    step: int | None = None


class _Place(NamedTuple):
    """The run of a version and its number there."""

    run: str
    number: int


class VersionRejection(NamedTuple):
    """Why the requested version must not be rolled out."""

    reason: str
    message: str


def objection(world: World) -> VersionRejection | None:
    """Return why the target must not be rolled out now; None if it may be."""
    rewound = _rewound(world)
    if rewound is not None:
        return VersionRejection("StepRewound", rewound)
    target = world.fleet.target
    forbidden = None if target is None else too_old(target, world.fleet.spec.staleness)
    return None if forbidden is None else VersionRejection("StaleTarget", forbidden)


def _rewound(world: World) -> str | None:
    """Return a message if weights.step goes back without permission.

    The API server rejects most such changes, but compares only two consecutive specs.
    """
    weights, recorded = world.fleet.spec.weights, world.fleet.status.rollout
    if weights is None or weights.step is None or recorded is None or recorded.step is None:
        return None
    is_back = weights.run_id == recorded.run_id and weights.step < recorded.step
    if not is_back or world.fleet.spec.rollout.allow_rewind:
        return None
    return (
        f"weights.step {weights.step} is lower than the last rollout's {recorded.step}"
        f" (weights.runId {weights.run_id or 'is empty'}); set rollout.allowRewind to go back, or"
        " another weights.runId"
    )


def skew(world: World) -> int | None:
    """Return the steps between the newest and the oldest version that takes traffic."""
    served = {w.proved for w in world.workers if w.is_open and w.takes_traffic and w.proved}
    runs: dict[str, list[int]] = defaultdict(list)
    for place in _places(served, world).values():
        runs[place.run].append(place.number)
    skews = (max(numbers) - min(numbers) for numbers in runs.values())
    return max((min(steps, _MOST_STEPS) for steps in skews), default=None)


def stale(world: World) -> dict[str, str]:
    """Return how serving workers violate spec.staleness, by their names."""
    bounds = world.fleet.spec.staleness
    if bounds is None:
        return {}
    served = {w.name: w.proved for w in world.workers if w.is_open and w.proved}
    versions = set(served.values())
    behind = {} if bounds.max_skew is None else _behind(versions, world)
    whys = {version: _violation(version, bounds, behind.get(version, 0)) for version in versions}
    return {name: f"{v} {why}" for name, v in served.items() if (why := whys[v])}


def _violation(version: str, bounds: StalenessSpec, steps_behind: int) -> str | None:
    """Return how a served version violates the bounds; None if it does not."""
    if bounds.min_version and is_lower(version, bounds.min_version):
        return f"is older than staleness.minVersion {bounds.min_version}"
    if bounds.max_skew is not None and steps_behind > bounds.max_skew:
        steps = f"is {steps_behind} steps behind the newest version served"
        return f"{steps} (staleness.maxSkew {bounds.max_skew})"
    return None


def too_old(version: str, bounds: StalenessSpec | None) -> str | None:
    """Return why no worker could take traffic with a version; None if it could."""
    if bounds is None or bounds.on_violation != "Unready":
        return None
    if not bounds.min_version or not is_lower(version, bounds.min_version):
        return None
    return (
        f"{version} is older than staleness.minVersion {bounds.min_version}, so no worker could"
        " take traffic (staleness.onViolation is Unready); request a later version, or lower the"
        " minimum"
    )


def _behind(served: set[str], world: World) -> dict[str, int]:
    """Return the steps by which each version is behind the newest of its run.

    Versions newer than the target do not count, because workers leave them. So a worker with the
    target is never behind.
    """
    goal = _goal(world)
    places = _places(served if goal is None else {*served, goal}, world)
    end = places.get(goal) if goal is not None else None
    newest: dict[str, int] = {}
    for version in {w.proved for w in world.desired if w.is_open and w.proved} & places.keys():
        run, number = places[version]
        if end is None or run != end.run or number <= end.number:
            newest[run] = max(newest.get(run, number), number)
    return {v: newest.get(run, number) - number for v, (run, number) in places.items()}


def _goal(world: World) -> str | None:
    """Return the version that the workers change to; None without a target."""
    recorded = world.fleet.status.rollout
    return recorded.to if recorded and world.fleet.target is not None else world.fleet.target


def _places(versions: set[str], world: World) -> dict[str, _Place]:
    """Return run and number of each version that has a number.

    Within a run, all numbers are declared steps, or all are the numbers at the ends of names: the
    scales differ. A version without a record counts for the recorded run.
    """
    declared, recorded = _declared(world), world.fleet.status.rollout
    unknown = _Declared(recorded.run_id if recorded else "")
    runs: dict[str, list[str]] = defaultdict(list)
    for version in versions:
        runs[declared.get(version, unknown).run].append(version)
    return {
        version: _Place(run, number)
        for run, members in runs.items()
        for version, number in _numbers(members, declared).items()
    }


def _numbers(versions: Iterable[str], declared: Mapping[str, _Declared]) -> dict[str, int]:
    steps = {v: declared.get(v, _Declared()).step for v in versions}
    names = {v: number_of(v) for v in versions}
    has_all = all(step is not None or names[v] is None for v, step in steps.items())
    return {v: n for v, n in (steps if has_all else names).items() if n is not None}


def _declared(world: World) -> dict[str, _Declared]:
    """Return what specs declared of the versions in spec, rollout and history."""
    spec, status = world.fleet.spec, world.fleet.status
    found = {
        past.to: _Declared(past.run_id, past.step)
        for past in reversed(status.history)
        # A rollback's run and step are about the version that it replaces.
        if past.reason != Reason.ROLLBACK
    }
    recorded = status.rollout
    if recorded is not None:
        found[recorded.asked or recorded.to] = _Declared(recorded.run_id, recorded.step)
    if spec.weights is not None and spec.weight_version is not None:
        found[spec.weight_version] = _Declared(spec.weights.run_id, spec.weights.step)
    return found
