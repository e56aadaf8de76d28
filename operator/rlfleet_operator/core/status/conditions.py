"""Conditions, as kstatus, Argo CD and ``kubectl wait`` read them.

Ready and WeightsSynced are always present, all others only while they are true: False must
not be the good state of a published condition. A time changes only with its condition's
status, so that an idle fleet causes no writes.
"""

from collections.abc import Iterable

from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.version_label import version_of
from rlfleet_operator.core.model.worker_phase import Phase, complaint_of, phase_of
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.cohorts import canary_of, exceptional, kept, selected
from rlfleet_operator.core.rollout.next_rollout import is_requested
from rlfleet_operator.core.rollout.rollout import CANARY_HOLD, HELD, Reason, Rollout, operation_of
from rlfleet_operator.core.rollout.worker_goal import pending_goal
from rlfleet_operator.core.status import waiting_requests
from rlfleet_operator.core.status.verdict import (
    READY,
    RECONCILING,
    STALLED,
    SYNCED,
    ConditionVerdict,
    forbidden,
    refused,
    sometimes,
)
from rlfleet_operator.core.strategy import lora
from rlfleet_operator.crd.fleet_status import Condition
from rlfleet_operator.crd.rollout_spec import Promote, Strategy

MESSAGE_LIMIT = 1024
MIXED = "MixedVersions"
"""The reason of a fleet whose workers serve several versions."""


def verdicts(world: World, rollout: Rollout | None) -> tuple[ConditionVerdict, ...]:
    """Return the conditions of the fleet, without times."""
    stalled, ready = _stalled(world, rollout), _ready(world)
    always = (ready, _synced(world, rollout, stalled), *sometimes(world))
    if stalled is not None:
        return (*always, stalled)
    is_quiet = not _is_moving(world) and not lora.missing(world)
    if ready.is_true and _is_settled(world, rollout) and is_quiet:
        return always
    return (*always, _reconciling(world, rollout))


def _is_settled(world: World, rollout: Rollout | None) -> bool:
    """Return whether the rollout has changed every worker that it may change."""
    return not behind(world, rollout.to if rollout else None, selected=True)


def abandoned(why: str) -> ConditionVerdict:
    """Return the condition of a fleet whose driver has stopped by a defect."""
    message = f"{why}; the operator retries within 5 minutes, or when the spec changes"
    return ConditionVerdict(STALLED, "InternalError", message)


def dated(
    found: Iterable[ConditionVerdict], before: Iterable[Condition], *, generation: int, now: str
) -> list[Condition]:
    """Return the verdicts as conditions; one with an unchanged status keeps its time."""
    known = {c.type: c for c in before}
    dated_conditions = []
    for verdict in found:
        status = "True" if verdict.is_true else "False"
        old = known.get(verdict.type)
        since = old.last_transition_time if old and old.status == status else now
        dated_conditions.append(
            Condition(
                type=verdict.type,
                status=status,
                reason=verdict.reason,
                message=verdict.message[:MESSAGE_LIMIT],
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return dated_conditions


def is_synced(worker: Worker, version: str | None) -> bool:
    """Return whether a worker takes traffic with the version, or with any if it is None.

    A worker that a trainer paused with the version counts, because the change is done. A busy
    worker does not count, because a command of an earlier rollout may change it again.
    """
    if worker.pod is None or worker.is_busy:
        return False
    if not worker.is_kept and not (worker.is_open and worker.takes_traffic):
        return False
    return version is None or worker.proved == version


def behind(world: World, version: str | None, *, selected: bool = False) -> list[Worker]:
    """Return the desired (or only the selected) workers that are not synced with the version."""
    key = (behind, version)
    if key not in world.memo:
        world.memo[key] = [w for w in world.desired if not is_synced(w, version)]
    found: list[Worker] = world.memo[key]
    first = kept(world) if selected else 0
    return [w for w in found if w.ordinal >= first] if first else found


def refusal_of(world: World, rollout: Rollout | None) -> tuple[Worker, Problem] | None:
    """Return the first worker that rejects the target's checkpoint, with its problem."""
    if rollout is None:
        return None
    found = ((w, w.rejection_of(rollout.to, rollout.operation)) for w in world.exceptional)
    return next(((worker, problem) for worker, problem in found if problem is not None), None)


def served_by(worker: Worker) -> str | None:
    """Return the version that a ready worker serves; empty if unknown, None during a change.

    A silent one serves what it reported, or its label has, unless a command may have changed it.
    """
    if worker.is_live:
        return worker.proved
    if worker.is_busy:
        return ""
    labelled = version_of(worker.pod.version_label) if worker.last and worker.pod else None
    return (worker.report.proved if worker.report else labelled) or ""


def _ready(world: World) -> ConditionVerdict:
    wanted = world.fleet.spec.replicas
    ready = [w for w in world.desired if w.takes_traffic]
    if wanted == 0:
        reason, message = "ScaledToZero", "0 workers requested (spec.replicas is 0)"
    elif len(ready) != wanted:
        message = f"{len(ready)} of {wanted} workers ready{_first_complaint(world)}"
        return ConditionVerdict(READY, "InsufficientWorkers", message, is_true=False)
    elif waiting_requests.held_up(world):
        reason = waiting_requests.REASON
        message = f"{wanted} of {wanted} workers ready; {waiting_requests.message(world)}"
    else:
        versions = sorted({version for w in ready if (version := served_by(w)) is not None})
        reason = "AllServing" if len(versions) < 2 else MIXED  # noqa: PLR2004
        serving = " and ".join(v or "an unknown version" for v in versions)
        does = f"serve {serving}" if versions else "ready, changing versions"
        message = f"{wanted} of {wanted} workers {does}"
    return ConditionVerdict(READY, reason, message)


def summary(world: World, found: Iterable[ConditionVerdict]) -> str:
    """Return the state of the fleet in one line; the conditions have the reasons."""
    by_type = {verdict.type: verdict for verdict in found}
    ready, stalled = by_type[READY], by_type.get(STALLED)
    text = ready.message
    if not ready.is_true:
        wanted = len(world.desired)
        out = [w for w in world.desired if not w.takes_traffic]
        text = f"{wanted - len(out)} of {wanted} workers ready"
        if out and stalled is None:
            text += f"; {out[0].name} {_state(out[0])}{_restarts(out[0])}"
    if stalled is not None:
        count = ready.message.partition(" workers")[0]
        text = f"Stalled: {stalled.reason}; {count} workers ready"
    return text


def _state(worker: Worker) -> str:
    """Return the phase of a worker without traffic; one that serves is not ready."""
    phase = phase_of(worker)
    return "not ready" if phase is Phase.SERVING else phase


def _restarts(worker: Worker) -> str:
    """Return how often an engine that does not come up has restarted, if more than once."""
    count = worker.pod.engine_restarts if worker.pod else 0
    return f" (restart {count})" if count > 1 and phase_of(worker) is Phase.STARTING else ""


def _first_complaint(world: World) -> str:
    """Return what is wrong with the first worker without traffic of which that is known."""
    return _first_of((w for w in world.exceptional if not (w.pod and w.pod.ready)), world)


def _why_late(world: World, rollout: Rollout | None) -> str:
    """Return the same, else why one with traffic does not change: it is silent, or it failed."""
    silent = (w for w in world.exceptional if w.silence)
    failed = (w for w in world.exceptional if w.failure_in(operation_of(rollout)))
    return _first_complaint(world) or _first_of(silent, world) or _first_of(failed, world)


def _first_of(workers: Iterable[Worker], world: World) -> str:
    for worker in workers:
        if complaint := complaint_of(worker, world):
            return f"; {worker.name}: {complaint}"
    return ""


def _synced(
    world: World, rollout: Rollout | None, stalled: ConditionVerdict | None
) -> ConditionVerdict:
    wanted, target = len(world.desired), world.fleet.target
    done = wanted - len(behind(world, target))
    message = f"{done} of {wanted} workers proved {target or 'a version'}"
    if done == wanted:
        versions = sorted({w.proved for w in world.desired if w.proved}) if target is None else ()
        if len(versions) < 2:  # noqa: PLR2004
            return ConditionVerdict(SYNCED, "Proved", message)
        message += f": {' and '.join(versions)}; no version is requested"
        return ConditionVerdict(SYNCED, MIXED, message, is_true=False)
    reason, complaint = _why_behind(world, rollout, stalled), _why_late(world, rollout)
    return ConditionVerdict(SYNCED, reason, message + complaint, is_true=False)


def _why_behind(world: World, rollout: Rollout | None, stalled: ConditionVerdict | None) -> str:
    if world.fleet.spec.rollout.dry_run and is_requested(world):
        return "DryRun"
    if _quarantined(world):
        return "Quarantined"
    if rollout is not None and rollout.reason is Reason.ROLLBACK:
        return "RolledBack"
    if stalled is not None:
        # The same reason as Stalled: waiting does not help.
        return stalled.reason
    return "Partitioned" if kept(world) and _is_settled(world, rollout) else "Behind"


def _stalled(world: World, rollout: Rollout | None) -> ConditionVerdict | None:
    if trouble := refused(world):
        return ConditionVerdict(STALLED, "ObjectRefused", trouble)
    final = forbidden(world) or _ended_badly(rollout)
    if final is not None:
        return final
    refusal = _refusal(world, rollout)
    if refusal is not None and not any(map(_is_moved, world.exceptional)):
        return refusal
    broken = [w for w in _quarantined(world) if _is_given_up(w, rollout)]
    if broken and not _others_move(world, rollout):
        names = ", ".join(w.name for w in broken[:5])
        message = (
            f"{len(broken)} of {len(world.desired)} workers quarantined: {names}"
            f"{_first_complaint(world)}. Delete the pod to replace it, or request another version"
            " (spec.weightVersion or fleet API)"
        )
        return ConditionVerdict(STALLED, "WorkersQuarantined", message)
    return _overdue(world, rollout)


def _refusal(world: World, rollout: Rollout | None) -> ConditionVerdict | None:
    """Return which version a worker rejects: the target, or without a deadline its own."""
    found, way_out = refusal_of(world, rollout), ""
    if found is None:
        found = _refusal_for_good(world, rollout)
        way_out = "; publish it again, or let all workers change to another version"
    if found is None:
        return None
    worker, problem = found
    message = f"{problem.version} rejected by {worker.name}: {problem.message}{way_out}"
    return ConditionVerdict(STALLED, problem.code, message)


def _refusal_for_good(world: World, rollout: Rollout | None) -> tuple[Worker, Problem] | None:
    """Return a worker that rejects its version in a hold, or without a target."""
    recorded, operation = world.fleet.status.rollout, operation_of(rollout)
    if rollout is not None and (recorded is None or recorded.held_since is None):
        return None
    goals = ((w, pending_goal(w, world, rollout)) for w in world.exceptional)
    found = ((w, w.rejection_of(goal, operation)) for w, goal in goals if goal)
    return next(((w, problem) for w, problem in found if problem is not None), None)


_RETRY = (
    "Set a new rollout.restartId to retry, or request another version (spec.weightVersion or"
    " fleet API)"
)


def _ended_badly(rollout: Rollout | None) -> ConditionVerdict | None:
    """Return how a rollout failed; the operator does not retry it without a new request."""
    if rollout is None or rollout.is_active:
        return None
    if rollout.is_completed:
        if rollout.reason is not Reason.ROLLBACK:
            return None
        message = f"{rollout.why}; rolled back to {rollout.to}. {_RETRY}"
        return ConditionVerdict(STALLED, "RolledBack", message)
    reason = "RolloutHeld" if rollout.phase == HELD else "RolloutFailed"
    message = f"{rollout.why}; the other workers keep their version. {_RETRY}"
    return ConditionVerdict(STALLED, reason, message)


def _quarantined(world: World) -> list[Worker]:
    return [w for w in world.exceptional if w.stage is Stage.DOUBT]


def _is_given_up(worker: Worker, rollout: Rollout | None) -> bool:
    """Return whether the version itself failed on the worker: the operator stops retrying it."""
    if rollout is None:
        return True
    versions = {rollout.to, rollout.fallback, rollout.kept} - {""}
    return any(worker.failed(version, rollout.operation) for version in versions)


def _others_move(world: World, rollout: Rollout | None) -> bool:
    left = behind(world, rollout.to if rollout else None, selected=True)
    return any(w.stage is not Stage.DOUBT for w in left)


def _overdue(world: World, rollout: Rollout | None) -> ConditionVerdict | None:
    """Report a rollout that exceeds its deadline; the operator still continues it."""
    recorded = world.fleet.status.rollout
    if rollout is None or recorded is None or rollout.is_new or rollout.is_completed:
        return None
    deadline = world.fleet.spec.rollout.progress_deadline_seconds
    spent = recorded.spent_s(world.moment) - recorded.held_s(world.moment)
    late = len(behind(world, rollout.to))
    if recorded.held_since is not None or spent < deadline or not late:
        return None
    done = len(world.desired) - late
    message = (
        f"rollout {rollout.id} to {rollout.to} has not ended within {deadline} s"
        f" (rollout.progressDeadlineSeconds): {done} of {len(world.desired)} workers"
        f" proved it{_why_late(world, rollout)}"
    )
    return ConditionVerdict(STALLED, "ProgressDeadlineExceeded", message)


def _is_moving(world: World) -> bool:
    extra = len(world.workers) != len(world.desired)
    return extra or world.has_outdated or any(map(_is_moved, world.exceptional))


def _is_moved(worker: Worker) -> bool:
    """Return whether a worker's change makes progress: not while a trainer pauses it."""
    return worker.is_changing and not worker.is_kept


def _reconciling(world: World, rollout: Rollout | None) -> ConditionVerdict:
    late = behind(world, rollout.to if rollout else None, selected=True)
    left = f"{len(late)} of {len(selected(world))} workers"
    lacking = lora.missing(world)
    if rollout and rollout.is_active:
        reason, hint = _pace(world, rollout)
        message = f"rollout {rollout.id} from {rollout.before or 'no version'} to {rollout.to}"
        message += f": {left} left{hint}"
    elif late:
        reason, message = "CatchingUp", f"{left} catching up with the fleet's version"
    elif lacking:
        worker, adapter = lacking[0]
        reason = "LoadingAdapters"
        message = f"adapter {adapter.name} loading on {worker.name} (loads left: {len(lacking)})"
    else:
        pods = sum(w.pod is not None for w in world.workers)
        reason, message = "Scaling", f"scaling: {pods} of {len(world.desired)} pods exist"
        if outdated := sum(map(world.is_outdated, world.desired)):
            message += f", {outdated} of an old template"
    return ConditionVerdict(RECONCILING, reason, message)


def _pace(world: World, rollout: Rollout) -> tuple[str, str]:
    """Return the reason of a rollout's progress, and what it waits for."""
    recorded = world.fleet.status.rollout
    if world.fleet.spec.rollout.paused:
        return "Paused", "; waiting: rollout.paused is true"
    if rollout.reason is Reason.ROLLBACK:
        return "RollingBack", f"; {rollout.why}"
    if recorded is not None and recorded.phase == CANARY_HOLD:
        canary = canary_of(world)
        is_manual = (
            canary is not None
            and canary.promote is Promote.MANUAL
            and canary.promoted_version != rollout.to
        )
        waits_for = (
            f"set rollout.canary.promotedVersion to {rollout.to}"
            if is_manual
            else "waiting for rollout.canary.holdSeconds"
        )
        return "CanaryHold", f"; canaries serve: {waits_for}"
    adapting = next((w.name for w in exceptional(world) if w.is_adapting), None)
    if adapting is not None and world.fleet.spec.rollout.strategy is Strategy.BARRIER:
        return "RollingOut", f"; no worker pauses until {adapting} has loaded its adapter"
    return "RollingOut", ""
