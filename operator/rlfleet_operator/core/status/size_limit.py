"""Status in a bounded number of bytes: etcd keeps 1.5 MiB of an object, its spec included.

It must stay true that what a driver needs is never left out (target, rollout, epoch, a trainer's
asking), that the rest goes in a fixed order, and that status names what is left out. History is
known from status alone: once it is left out it is gone, which its absence says from then on.
"""

from collections.abc import Callable

from rlfleet_operator.core.model.worker_phase import BADNESS, Phase
from rlfleet_operator.crd.fleet_status import FleetStatus, WorkerStatus

LIMIT = 2**20
"""Bytes of JSON that a status may take."""
LEAST = 2**14
"""A smaller limit would leave nothing out that is left."""
_WORST = 16
"""So many workers stay while there is anything else to leave out."""
_SHORT = 64
"""Characters of a worker's or an adapter's message once they are cut."""


def bounded(status: FleetStatus, limit: int = LIMIT) -> FleetStatus:
    """Return the status, without as many details as its size asks for."""
    for what, lighten in _STEPS:
        if _size(status) <= limit:
            break
        lighter = lighten(status, limit)
        if lighter != status:
            status = lighter.model_copy(update={"left_out": [*status.left_out, what]})
    return status


def after_refusal(status: FleetStatus, limit: int) -> int:
    """Return the limit once the API server has refused a status as too large."""
    return max(LEAST, min(limit, _size(status)) // 2)


def _size(status: FleetStatus) -> int:
    return len(status.model_dump_json(by_alias=True, exclude_none=True).encode())


def _without_workers_adapters(status: FleetStatus, limit: int) -> FleetStatus:
    del limit
    workers = [worker.model_copy(update={"adapters": None}) for worker in status.workers]
    return status.model_copy(update={"workers": workers})


def _without_preview(status: FleetStatus, limit: int) -> FleetStatus:
    del limit
    return status.model_copy(update={"preview": []})


def _with_short_messages(status: FleetStatus, limit: int) -> FleetStatus:
    del limit
    workers = [
        worker.model_copy(update={"message": worker.message and worker.message[:_SHORT]})
        for worker in status.workers
    ]
    adapters = [
        adapter.model_copy(update={"message": adapter.message and adapter.message[:_SHORT]})
        for adapter in status.adapters
    ]
    return status.model_copy(update={"workers": workers, "adapters": adapters})


def _with_fewer_workers(status: FleetStatus, limit: int, least: int = _WORST) -> FleetStatus:
    """Return the status with its worst workers, as many as go in, ``least`` at least."""
    all_of_them = len(status.workers) + status.workers_truncated
    while len(status.workers) > least and _size(status) > limit:
        count = max(least, len(status.workers) // 2)
        kept = sorted(status.workers, key=_worst_first)[:count]
        update = {"workers": kept, "workers_truncated": all_of_them - count}
        status = status.model_copy(update=update)
    return status


def _without_workers(status: FleetStatus, limit: int) -> FleetStatus:
    return _with_fewer_workers(status, limit, least=0)


def _worst_first(worker: WorkerStatus) -> int:
    known = {str(phase): badness for phase, badness in BADNESS.items()}
    return known.get(worker.phase, BADNESS[Phase.SERVING])


def _without_history(status: FleetStatus, limit: int) -> FleetStatus:
    del limit
    return status.model_copy(update={"history": []})


def _without_adapters(status: FleetStatus, limit: int) -> FleetStatus:
    del limit
    return status.model_copy(update={"adapters": []})


_STEPS: tuple[tuple[str, Callable[[FleetStatus, int], FleetStatus]], ...] = (
    ("workers[].adapters", _without_workers_adapters),
    ("preview", _without_preview),
    ("messages beyond 64 characters", _with_short_messages),
    ("workers, the best first", _with_fewer_workers),
    ("history", _without_history),
    ("adapters", _without_adapters),
    ("all workers", _without_workers),
)
