"""The size limit of status: etcd stores at most 1.5 MiB of an object, its spec included.

It must stay true that status never leaves out what a driver needs (target, rollout, epoch, a
trainer's requests), leaves out the rest in a fixed order, and names what it leaves out. History
exists only in status: once it is left out, it is lost.
"""

from collections.abc import Callable
from functools import partial

from rlfleet_operator.core.model.worker_phase import BADNESS, Phase
from rlfleet_operator.crd.fleet_status import FleetStatus, WorkerStatus
from rlfleet_operator.crd.lora import AdapterStatus

LIMIT = 2**20
"""Bytes of JSON that a status may take."""
LEAST = 2**14
"""A smaller limit would leave out nothing more."""
_WORST = 16
"""Number of workers that stay while anything else can be left out."""
_SHORT = 64
"""Characters of a worker's or an adapter's shortened message."""


def bounded(status: FleetStatus, limit: int = LIMIT) -> FleetStatus:
    """Return the status, with as many details as fit into the limit."""
    for what, lighten in _STEPS:
        if _size(status) <= limit:
            break
        lighter = lighten(status, limit)
        if lighter != status:
            status = lighter.model_copy(update={"left_out": [*status.left_out, what]})
    return status


def after_refusal(status: FleetStatus, limit: int) -> int:
    """Return the next limit after the API server rejected a status as too large."""
    return max(LEAST, min(limit, _size(status)) // 2)


def _size(status: FleetStatus) -> int:
    return len(status.model_dump_json(by_alias=True, exclude_none=True).encode())


def _without(field: str) -> Callable[[FleetStatus, int], FleetStatus]:
    """Return the step that leaves out a whole list, whatever the limit."""
    return lambda status, _limit: status.model_copy(update={field: []})


def _without_workers_adapters(status: FleetStatus, _limit: int) -> FleetStatus:
    workers = [worker.model_copy(update={"adapters": None}) for worker in status.workers]
    return status.model_copy(update={"workers": workers})


def _with_short_messages(status: FleetStatus, _limit: int) -> FleetStatus:
    def short(one: WorkerStatus | AdapterStatus) -> WorkerStatus | AdapterStatus:
        return one.model_copy(update={"message": one.message and one.message[:_SHORT]})

    workers, adapters = list(map(short, status.workers)), list(map(short, status.adapters))
    return status.model_copy(update={"workers": workers, "adapters": adapters})


def _with_fewer_workers(status: FleetStatus, limit: int, least: int = _WORST) -> FleetStatus:
    """Return the status with its worst workers, as many as fit, but ``least`` of them."""
    all_of_them = len(status.workers) + status.workers_truncated
    while len(status.workers) > least and _size(status) > limit:
        count = max(least, len(status.workers) // 2)
        kept = sorted(status.workers, key=_worst_first)[:count]
        update = {"workers": kept, "workers_truncated": all_of_them - count}
        status = status.model_copy(update=update)
    return status


def _worst_first(worker: WorkerStatus) -> int:
    known = {str(phase): badness for phase, badness in BADNESS.items()}
    return known.get(worker.phase, BADNESS[Phase.SERVING])


_STEPS: tuple[tuple[str, Callable[[FleetStatus, int], FleetStatus]], ...] = (
    ("workers[].adapters", _without_workers_adapters),
    ("preview", _without("preview")),
    ("messages beyond 64 characters", _with_short_messages),
    ("workers, the best first", _with_fewer_workers),
    ("history", _without("history")),
    ("adapters", _without("adapters")),
    ("all workers", partial(_with_fewer_workers, least=0)),
)
