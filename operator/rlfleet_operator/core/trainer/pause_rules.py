"""A trainer's pause of a whole fleet: what it may ask for, what is recorded, what it hears. Pure.

It must stay true that a fleet is resumed only if every worker that answers has proved what its
trainer asked for last: such clients resume in any case, also after an update that failed.
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
    WorkerSaid,
    demand_unowned,
)
from rlfleet_operator.core.trainer.replies import Course, WorkerState, course, said
from rlfleet_operator.crd.fleet_status import TrainerPause

_REASON_LIMIT = 1024
_DAY_S = 86_400.0
Mode = Annotated[
    PauseMode, BeforeValidator(lambda word: word.capitalize() if isinstance(word, str) else word)
]


class PauseRequested(ContractRequest):
    """What pause, resume and flush_cache take, as JSON or in the query; all of it optional."""

    mode: Mode = PauseMode.KEEP
    """Of a pause: keep, wait or abort."""
    clear_cache: bool = True
    """Of a pause: whether the KV and prefix caches are emptied."""
    ttl_s: float = Field(default=TRAINER_TTL_S, gt=0, le=MAX_TTL_S)
    """Of a pause: for how long it lasts after its trainer's last request, in seconds."""
    timeout_s: float | None = Field(default=None, gt=0, le=_DAY_S)
    """How long to wait for the workers, in seconds; None: as long as one worker may take."""


class Told(ContractReply):
    """The reply to pause, resume and flush_cache once their end is known, good or bad."""

    status: Literal["ok", "error"]
    code: Fault | None = None
    message: str
    retryable: bool = False
    paused: bool
    """Whether a trainer's pause holds the fleet."""
    paused_until: str | None = None
    """When that ends of itself."""
    workers: list[WorkerSaid]


def asked_from(body: bytes, query: Mapping[str, str]) -> PauseRequested:
    """Read what is asked for; raises Refusal that names the field."""
    try:
        if not body:
            return PauseRequested.model_validate(dict(query))
        # The query of a request with a body says nothing to these routes' clients.
        return PauseRequested.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise Refusal(Fault.INVALID_REQUEST, f"{where}: {first['msg']}") from error


# --- what may be asked for --------------------------------------------------------------------


def demand_quiet(fleet: Fleet, raw: Raw, what: str) -> None:
    """Raise Refusal unless the fleet is a trainer's to pause, resume or flush now."""
    demand_unowned(fleet, raw, f"{what} was not done")
    target, rollout = fleet.target, fleet.status.rollout
    if target is not None and course(fleet, target) is Course.UNDER_WAY:
        which = "a rollout" if rollout is None or rollout.to != target else f"rollout {rollout.id}"
        raise Refusal(
            Fault.ROLLOUT_RUNS,
            f"{which} to {target} is under way, and leads the workers: {what} was not done."
            " Send it when that has ended",
        )


def demand_resumable(pause: TrainerPause, workers: Sequence[WorkerState]) -> None:
    """Raise Refusal if a resume would serve what its trainer does not mean."""
    if pause.refused is not None:
        raise _not_resumable(f"the last update was refused ({pause.refused})")
    reports = _reports_before_resume(workers)
    doubted = [n for n, r in reports.items() if r.stage in {Stage.LOADING, Stage.DOUBT}]
    if doubted:
        raise _not_resumable(f"nobody knows what {', '.join(doubted[:5])} hold")
    version = pause.version
    others = [n for n, r in reports.items() if version is not None and r.proved != version]
    if others:
        raise _not_resumable(f"{', '.join(others[:5])} did not prove {version}")


def _reports_before_resume(workers: Sequence[WorkerState]) -> dict[str, WorkerReport]:
    """Return the reports of the workers that a resume would open, by name.

    One that does not answer, or whose engine boots, serves nothing when it comes back but what the
    fleet asks for.
    """
    found = {w.name: w.report for w in workers if w.report is not None}
    return {n: r for n, r in found.items() if r.stage not in {Stage.DOWN, Stage.CLOSED}}


def _not_resumable(why: str) -> Refusal:
    return Refusal(
        Fault.NOT_RESUMABLE,
        f"nobody was resumed: {why}. Update the fleet to a good version, or pause it anew"
        " before resuming",
    )


def demand_paused(fleet: Fleet, moment: float) -> TrainerPause:
    """Return the pause of the fleet; raises Refusal if there is none."""
    pause = fleet.pause_at(moment)
    if pause is None:
        raise Refusal(Fault.NOT_PAUSED, "no trainer has paused this fleet: send pause first")
    return pause


# --- what is recorded -------------------------------------------------------------------------


def paused(
    known: TrainerPause | None, asked: PauseRequested, moment: float, fresh: str
) -> TrainerPause:
    """Return the pause to record: the one that holds already goes on, and begins a change anew."""
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
    """Return the pause after another request of its trainer: its time counts anew."""
    until = time_of(moment + pause.ttl_seconds)
    return pause.model_copy(update={"until": until, **change})


def refused(pause: TrainerPause, why: str) -> TrainerPause:
    """Return the pause after an update that was refused."""
    return pause.model_copy(update={"refused": why[:_REASON_LIMIT]})


def record_of_pause(raw: Raw, pause: TrainerPause) -> dict[str, Any]:
    """Return the merge patch of status that records a pause, as long as nobody else has written."""
    body = pause.model_dump(mode="json", by_alias=True)
    return {
        "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
        "status": {"trainerPause": body},
    }


# --- what it hears ----------------------------------------------------------------------------


def is_given_up(worker: WorkerState, operation: str) -> bool:
    """Return whether a worker says itself that it failed at what was asked of it."""
    failure = worker.report.failure if worker.report else None
    return failure is not None and failure.operation == operation


def told(
    fleet: Fleet,
    workers: Sequence[WorkerState],
    is_done: Callable[[WorkerState], bool],
    what: str,
    *,
    moment: float,
    hint: str = "the same request tries again",
) -> tuple[int, Told]:
    """Return the HTTP status and the reply: 200 only if every worker did it, and there is one."""
    done = sum(map(is_done, workers))
    fault = Fault.INCOMPLETE if done < len(workers) else None
    fault = fault if workers else Fault.NO_WORKERS
    pause = fleet.pause_at(moment)
    message = f"{done} of {len(workers)} workers {what}"
    return (fault.status if fault else 200), Told(
        status="error" if fault else "ok",
        code=fault,
        message=f"{message}; {hint}" if fault else message,
        retryable=fault is not None,
        paused=pause is not None,
        paused_until=pause.until if pause else None,
        workers=[said(worker, fleet, is_well=is_done(worker)) for worker in workers],
    )
