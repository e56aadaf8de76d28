"""When the next time-dependent decision is due: no event wakes a fleet's loop for it."""

from collections.abc import Iterator

from rlfleet_operator.core.model.worker_phase import noticed_by, overdue_at, unseen_at
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout.outage import may_return_until
from rlfleet_operator.core.status import waiting_requests
from rlfleet_operator.core.strategy import lora

_POLL_S = 1.0
"""Poll interval for reports: an unchanged report does not wake the loop."""


def due_in_s(world: World) -> float | None:
    """Return the seconds until the next such moment; None without one."""
    waits = (moment - world.moment for moment in _moments(world))
    return min((wait for wait in waits if wait > 0), default=None)


def _moments(world: World) -> Iterator[float]:
    yield from (world.moment + step_s for step_s in waiting_requests.next_steps_s(world))
    for worker in (*world.exceptional, *world.surplus):
        yield worker.retry_at
        yield worker.replace_at
        yield overdue_at(worker) or 0.0
        yield unseen_at(worker) or 0.0
        yield may_return_until(worker)
        yield noticed_by(worker)
        if worker.pod and not worker.pod.weights_ready and lora.awaits_reports(worker, world):
            yield world.moment + _POLL_S
