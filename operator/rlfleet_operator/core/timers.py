"""When something comes due that only time brings: nobody wakes a fleet's loop for it."""

from collections.abc import Iterator

from rlfleet_operator.core.model.worker_phase import overdue_at
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.status import waiting_requests
from rlfleet_operator.core.strategy import lora

_HEARING_S = 1.0
"""A worker at rest that says what it said before is no news, and wakes nobody."""


def due_in_s(world: World) -> float | None:
    """Return the seconds until the next such moment; None when none is to come."""
    waits = (moment - world.moment for moment in _moments(world))
    return min((wait for wait in waits if wait > 0), default=None)


def _moments(world: World) -> Iterator[float]:
    yield from (world.moment + step_s for step_s in waiting_requests.next_steps_s(world))
    for worker in world.workers:
        yield worker.retry_at
        yield worker.replace_at
        yield overdue_at(worker) or 0.0
        if worker.pod and not worker.pod.weights_ready and lora.is_unheard(worker, world):
            yield world.moment + _HEARING_S
