"""The order of versions: steps within a run, and how old what is served may be."""

import re

from rlfleet_operator.core.world import Worker, World

_NUMBER_AT_THE_END = re.compile(r"(\d{1,15})$")


def objection(world: World) -> str | None:
    """Return why spec.weightVersion may not be rolled out now; None if nothing speaks against it.

    The API server refuses most of these; it sees only the change from one spec to the next.
    """
    weights, recorded = world.fleet.spec.weights, world.fleet.status.rollout
    if weights is None or weights.step is None or recorded is None or recorded.step is None:
        return None
    is_back = weights.run_id == recorded.run_id and weights.step < recorded.step
    if not is_back or world.fleet.spec.rollout.allow_rewind:
        return None
    return (
        f"weights.step {weights.step} is lower than {recorded.step}, which was rolled out before"
        f" (weights.runId {weights.run_id or 'is empty'}): set rollout.allowRewind if going back is"
        " meant, or another weights.runId"
    )


def step_of(version: str, world: World) -> int | None:
    """Return the step of a version: the spec's or the record's, else the number at its end."""
    spec, recorded = world.fleet.spec, world.fleet.status.rollout
    if spec.weights and spec.weights.step is not None and version == spec.weight_version:
        return spec.weights.step
    if recorded and recorded.step is not None and version == recorded.asked:
        return recorded.step
    found = _NUMBER_AT_THE_END.search(version)
    return int(found.group()) if found else None


def skew(world: World) -> int | None:
    """Return the steps between the newest and the oldest version that takes traffic."""
    steps = [
        step
        for w in world.workers
        if w.is_open and w.pod and w.pod.ready and w.proved
        if (step := step_of(w.proved, world)) is not None
    ]
    return max(steps) - min(steps) if steps else None


def stale(world: World) -> dict[str, str]:
    """Return how workers that serve break the bounds of spec.staleness, by their names."""
    bounds = world.fleet.spec.staleness
    if bounds is None:
        return {}
    lowest = step_of(bounds.min_version, world) if bounds.min_version else None
    newest = max((_served_step(w, world) for w in world.desired), default=-1)
    found: dict[str, str] = {}
    for worker in world.workers:
        own = _served_step(worker, world)
        if own < 0:
            continue
        if lowest is not None and own < lowest:
            why = f"is older than staleness.minVersion {bounds.min_version}"
            found[worker.name] = f"{worker.proved} {why}"
        elif bounds.max_skew is not None and newest - own > bounds.max_skew:
            why = f"is {newest - own} steps behind the newest version served"
            found[worker.name] = f"{worker.proved} {why} (staleness.maxSkew {bounds.max_skew})"
    return found


def _served_step(worker: Worker, world: World) -> int:
    """Return the step of the version that a worker serves; -1 if there is none."""
    if not worker.is_open or worker.proved is None:
        return -1
    step = step_of(worker.proved, world)
    return -1 if step is None else step
