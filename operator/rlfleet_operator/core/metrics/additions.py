"""What a worker's new report adds to its fleet's counters and histograms.

A worker's first report adds nothing: an earlier driver may have counted what it holds.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code, Problem
from rlfleet_contract.worker.report import Timings, WorkerReport
from rlfleet_operator.core.model.world import Worker

OTHER = "Other"
EXITED = "EngineExited"
REJECTIONS = (
    *sorted(CHECKPOINT_CODES),
    Code.ENGINE_UNFAITHFUL,
    Code.ENGINE_UNTESTED,
    OTHER,
)
"""Why a version is rejected before a pause."""
FAILURES = (
    EXITED,
    Code.PAUSE_FAILED,
    Code.FLUSH_FAILED,
    Code.RELOAD_FAILED,
    Code.PROOF_FAILED,
    Code.RESUME_FAILED,
    OTHER,
)
"""How a change fails."""
STEPS = ("prepare", "pause", "flush", "reload", "verify", "resume")


class Additions(NamedTuple):
    """What one report adds."""

    change: Timings | None = None
    """The durations of a change that succeeded."""
    prepared_bytes: int = 0
    rejection: str | None = None
    """One of REJECTIONS."""
    failure: str | None = None
    """One of FAILURES, without the exits."""
    exits: int = 0
    """How often the engine exited during a load."""


class Tally:
    """The last counted report of each worker of a fleet."""

    def __init__(self) -> None:
        """Start with no worker."""
        self._seen: dict[str, Worker] = {}

    def add(self, workers: Sequence[Worker]) -> Iterator[Additions]:
        """Yield what the workers' reports add; an unchanged worker is the same object."""
        before = self._seen
        self._seen = {worker.name: worker for worker in workers}
        for worker in workers:
            known = before.get(worker.name)
            if known is worker or known is None or known.report is worker.report:
                continue
            if known.report is not None and worker.report is not None and _is_same(known, worker):
                yield between(known.report, worker.report)


def _is_same(known: Worker, worker: Worker) -> bool:
    """Return whether the pod is the same; a new one's first report adds nothing."""
    return known.pod is not None and worker.pod is not None and known.pod.uid == worker.pod.uid


def between(before: WorkerReport, after: WorkerReport) -> Additions:
    """Return what a report adds to an earlier one of its worker."""
    change = after.last_change if after.last_change != before.last_change else None
    exits = _exits(before, after)
    is_new_copy = after.prepared is not None and after.prepared != before.prepared
    failure = _new(before.failure, after.failure)
    return Additions(
        change=change.timings if change else None,
        prepared_bytes=(after.prepared_bytes or 0) if is_new_copy else 0,
        rejection=_known(_new(before.refusal, after.refusal), REJECTIONS),
        # The failure of a load that ended with the engine is its exit.
        failure=None if exits else _known(failure, FAILURES),
        exits=exits,
    )


def _exits(before: WorkerReport, after: WorkerReport) -> int:
    if after.exits is None:
        return 0
    known = before.exits
    is_same_load = known is not None and (known.version, known.operation) == (
        after.exits.version,
        after.exits.operation,
    )
    return max(0, after.exits.count - (known.count if known and is_same_load else 0))


def _new(before: Problem | None, after: Problem | None) -> Problem | None:
    return after if after != before else None


def _known(problem: Problem | None, codes: Sequence[str]) -> str | None:
    if problem is None:
        return None
    return str(problem.code) if problem.code in codes else OTHER
