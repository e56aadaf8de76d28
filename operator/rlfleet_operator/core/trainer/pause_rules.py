"""A trainer's pause of a whole fleet: its requests, records and replies. Pure.

It must stay true that a fleet resumes only if every worker that answers has proved the trainer's
last version: such clients resume in any case, even after a failed update.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from rlfleet_contract.paths import MAX_TTL_S, TRAINER_TTL_S
from rlfleet_contract.schema import ContractReply, ContractRequest
from rlfleet_contract.worker.commands import KVCache, PauseMode
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model.world import Fleet, Raw, time_of
from rlfleet_operator.core.trainer.models import (
    Fault,
    Refusal,
    WorkerReply,
    demand_unowned,
    unparsable,
)
from rlfleet_operator.core.trainer.replies import UpdateProgress, WorkerState, course, entry_of
from rlfleet_operator.crd.fleet_status import TrainerPause

_REASON_LIMIT = 1024
_DAY_S = 86_400.0
Mode = Annotated[
    PauseMode, BeforeValidator(lambda word: word.capitalize() if isinstance(word, str) else word)
]


class PauseRequested(ContractRequest):
    """The fields of pause, resume and flush_cache, in JSON or the query; all are optional."""

    mode: Mode = PauseMode.KEEP
    """For pause: keep, wait or abort."""
    clear_cache: bool = True
    """For pause: whether to empty the KV and prefix caches."""
    ttl_s: float = Field(default=TRAINER_TTL_S, gt=0, le=MAX_TTL_S)
    """For pause: seconds that it lasts after the trainer's last request."""
    timeout_s: float | None = Field(default=None, gt=0, le=_DAY_S)
    """Seconds to wait for the workers; default: the timeout of one worker."""


class PauseReply(ContractReply):
    """The reply to pause, resume and flush_cache after their end, with success or not."""

    status: Literal["ok", "error"]
    code: Fault | None = None
    message: str
    retryable: bool = False
    paused: bool
    """Whether a trainer's pause holds the fleet."""
    paused_until: str | None = None
    """When that ends without another request."""
    workers: list[WorkerReply]


def asked_from(body: bytes, query: Mapping[str, str]) -> PauseRequested:
    """Return the parsed request; raises Refusal, which names the field."""
    try:
        if not body:
            return PauseRequested.model_validate(dict(query))
        # Clients of these routes send either a body or a query.
        return PauseRequested.model_validate_json(body)
    except ValidationError as error:
        raise unparsable(error) from error


# --- what may be requested --------------------------------------------------------------------


def demand_quiet(fleet: Fleet, raw: Raw, what: str) -> None:
    """Raise Refusal unless a trainer may pause, resume or flush the fleet now."""
    demand_unowned(fleet, raw, f"{what} rejected")
    target, rollout = fleet.target, fleet.status.rollout
    if target is not None and course(fleet, target) is UpdateProgress.UNDER_WAY:
        which = "a rollout" if rollout is None or rollout.to != target else f"rollout {rollout.id}"
        raise Refusal(
            Fault.ROLLOUT_RUNS,
            f"{what} rejected: {which} to {target} is under way; send it again after its end",
        )


def demand_resumable(pause: TrainerPause, workers: Sequence[WorkerState]) -> None:
    """Raise Refusal if a resume would serve weights that the trainer did not request."""
    if pause.refused is not None:
        raise _not_resumable(f"the last update was rejected ({pause.refused})")
    reports = _reports_before_resume(workers)
    doubted = [n for n, r in reports.items() if r.stage in {Stage.LOADING, Stage.DOUBT}]
    if doubted:
        raise _not_resumable(f"the weights of {', '.join(doubted[:5])} are unknown")
    version = pause.version
    others = [n for n, r in reports.items() if version is not None and r.proved != version]
    if others:
        raise _not_resumable(f"{', '.join(others[:5])} did not prove {version}")


def _reports_before_resume(workers: Sequence[WorkerState]) -> dict[str, WorkerReport]:
    """Return the reports of the workers that a resume would open, by name.

    A worker that does not answer, or whose engine boots, loads the fleet's version before it
    serves again.
    """
    found = {w.name: w.report for w in workers if w.report is not None}
    return {n: r for n, r in found.items() if r.stage not in {Stage.DOWN, Stage.CLOSED}}


def _not_resumable(why: str) -> Refusal:
    return Refusal(
        Fault.NOT_RESUMABLE,
        f"resume rejected: {why}; update the fleet to a good version, or pause it again first",
    )


def demand_paused(fleet: Fleet, moment: float) -> TrainerPause:
    """Return the pause of the fleet; raises Refusal if there is none."""
    pause = fleet.pause_at(moment)
    if pause is None:
        raise Refusal(Fault.NOT_PAUSED, "no trainer has paused the fleet; send pause first")
    return pause


# --- what is recorded -------------------------------------------------------------------------


def paused(
    known: TrainerPause | None, asked: PauseRequested, moment: float, fresh: str
) -> TrainerPause:
    """Return the pause to record: a known one continues, extended and without its last version."""
    ttl_s = max(1, round(asked.ttl_s))
    kept = known.operation if known is not None else fresh
    return TrainerPause(
        operation=kept,
        asked_at=time_of(moment) if known is None else known.asked_at,
        until=time_of(moment + ttl_s),
        ttl_seconds=ttl_s,
        mode=asked.mode,
        kv_cache=KVCache.RESET if asked.clear_cache else KVCache.PRESERVE,
        flushes=0 if known is None else known.flushes,
    )


def kept(pause: TrainerPause, moment: float, **change: Any) -> TrainerPause:
    """Return the pause after another request of the trainer, which extends it."""
    until = time_of(moment + pause.ttl_seconds)
    return pause.model_copy(update={"until": until, **change})


def refused(pause: TrainerPause, why: str) -> TrainerPause:
    """Return the pause after a rejected update."""
    return pause.model_copy(update={"refused": why[:_REASON_LIMIT]})


def record_of_pause(raw: Raw, pause: TrainerPause) -> dict[str, Any]:
    """Return the merge patch of status that records a pause, unless the object has changed."""
    body = pause.model_dump(mode="json", by_alias=True)
    return {
        "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
        "status": {"trainerPause": body},
    }


# --- replies ----------------------------------------------------------------------------------


def is_given_up(worker: WorkerState, operation: str) -> bool:
    """Return whether a worker reports that the operation failed."""
    failure = worker.report.failure if worker.report else None
    return failure is not None and failure.operation == operation


def pause_reply(
    fleet: Fleet,
    workers: Sequence[WorkerState],
    is_done: Callable[[WorkerState], bool],
    what: str,
    *,
    moment: float,
    hint: str,
) -> tuple[int, PauseReply]:
    """Return the HTTP status and the reply: 200 only if there are workers, and all succeeded."""
    done = sum(map(is_done, workers))
    fault = Fault.INCOMPLETE if done < len(workers) else None
    fault = fault if workers else Fault.NO_WORKERS
    pause = fleet.pause_at(moment)
    message = f"{done} of {len(workers)} workers {what}"
    return (fault.status if fault else 200), PauseReply(
        status="error" if fault else "ok",
        code=fault,
        message=f"{message}; {hint}" if fault else message,
        retryable=fault is not None,
        paused=pause is not None,
        paused_until=pause.until if pause else None,
        workers=[entry_of(worker, fleet, is_well=is_done(worker)) for worker in workers],
    )
