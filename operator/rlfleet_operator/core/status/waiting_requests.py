"""Requests that wait for long at the gates of workers that count as ready.

A worker in a change is ready, because its clients wait only for seconds. After a failed update of
a trainer they wait until the trainer returns, and an engine may be slow or hang in a change, so
status must report them.
"""

from collections.abc import Iterator

from rlfleet_operator.core.model.worker_phase import phase_of
from rlfleet_operator.core.model.world import Worker, World

REASON = "RequestsWaiting"
_STEPS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
"""Durations in messages: status must not change with every second."""


def held_up(world: World) -> tuple[Worker, ...]:
    """Return the workers whose requests wait for longer than a change takes."""
    return tuple(w for w in world.exceptional if _paused_s(w) >= _STEPS_S[0])


def longest(world: World) -> Worker:
    """Return the worker whose requests wait longest, of those whose requests wait for long."""
    return max(held_up(world), key=_paused_s)


def message(world: World) -> str:
    """Return which worker's requests wait longest, its phase, and how many others' wait."""
    holding, first = held_up(world), longest(world)
    past = max(step for step in _STEPS_S if step <= _paused_s(first))
    long = f"{past:.0f} s" if past < 120 else f"{past / 60:.0f} min"  # noqa: PLR2004 - seconds
    others = f" and {len(holding) - 1} more" if len(holding) > 1 else ""
    return f"requests wait over {long} at {first.name} ({phase_of(first)}){others}"


def next_steps_s(world: World) -> Iterator[float]:
    """Yield the seconds until the message changes."""
    for worker in world.exceptional:
        paused_s = _paused_s(worker)
        if paused_s > 0:
            yield from (step - paused_s for step in _STEPS_S if step > paused_s)


def _paused_s(worker: Worker) -> float:
    if worker.report is None or not (worker.is_live and worker.takes_traffic):
        return 0.0
    return worker.report.paused_s or 0.0
