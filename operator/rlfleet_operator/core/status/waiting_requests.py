"""Requests that wait for long at the gates of workers that count as ready.

A worker in a change is ready, because its clients wait for a moment only. After a trainer's update
that failed they wait until it comes back: status must say so.
"""

from collections.abc import Iterator

from rlfleet_operator.core.model.worker_phase import phase_of
from rlfleet_operator.core.model.world import Worker, World

REASON = "RequestsWaiting"
_STEPS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
"""What is said of how long it is: status does not change with every second."""


def held_up(world: World) -> tuple[Worker, ...]:
    """Return the workers that hold requests for longer than a change takes."""
    return tuple(w for w in world.desired if _paused_s(w) >= _STEPS_S[0])


def said(world: World) -> str:
    """Return how many hold requests, for how long, and in what phase the first of them is."""
    holding = held_up(world)
    first = max(holding, key=_paused_s)
    past = max(step for step in _STEPS_S if step <= _paused_s(first))
    long = f"{past:.0f} s" if past < 120 else f"{past / 60:.0f} min"  # noqa: PLR2004 - seconds
    return (
        f"{len(holding)} hold their requests, {first.name} for more than {long} ({phase_of(first)})"
    )


def next_steps_s(world: World) -> Iterator[float]:
    """Yield the seconds until there is something new to say."""
    for worker in world.desired:
        paused_s = _paused_s(worker)
        if paused_s > 0:
            yield from (step - paused_s for step in _STEPS_S if step > paused_s)


def _paused_s(worker: Worker) -> float:
    is_told = worker.is_live and worker.takes_traffic
    told = worker.report.paused_s if worker.report else None
    return told or 0.0 if is_told else 0.0
