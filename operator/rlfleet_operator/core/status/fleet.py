"""The status of a fleet, as a pure function of the world and the rollout."""

from typing import Any

from pydantic import BaseModel, ValidationError

from rlfleet_contract.worker.proof import Proof
from rlfleet_operator.core.model.worker_phase import BADNESS, Phase, complaint_of, phase_of
from rlfleet_operator.core.model.world import FLEET_LABEL, Fleet, Raw, Worker, World, time_of
from rlfleet_operator.core.rollout import following, outage, retention, version_order
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.status import conditions, invalid_object, rollout_history, size_limit
from rlfleet_operator.core.status.verdict import RECONCILING, STALLED
from rlfleet_operator.core.strategy import lora
from rlfleet_operator.crd.fleet_status import (
    FleetStatus,
    TrainerPause,
    TrainerRejected,
    TrainerTarget,
    WorkerStatus,
)
from rlfleet_operator.crd.selftest import SelfTestStatus

_WORKER_MESSAGE_LIMIT = 256
_SUMMARY_LIMIT = 80
"""Characters of the column STATUS."""
_ONE_TRAINER_S = 60.0
"""Rejections of one trainer within this time count as one: it calls every worker."""


def status_of(world: World, rollout: Rollout | None, size: int = size_limit.LIMIT) -> FleetStatus:
    """Return the status, in at most ``size`` bytes of JSON.

    Equal worlds give equal statuses, except for times.
    """
    return size_limit.bounded(_whole(world, rollout), size)


def _whole(world: World, rollout: Rollout | None) -> FleetStatus:
    now = time_of(world.moment)
    target = world.fleet.target or ""
    proved = sum(_has_proved(w, target) for w in world.desired)
    newest = following.latest(world)
    verdicts = conditions.verdicts(world, rollout)
    listed = _listed(world)
    return FleetStatus(
        observed_generation=(fleet := world.fleet).generation,
        epoch=fleet.status.epoch,
        replacing=outage.replacing(world),
        replicas=sum(w.pod is not None for w in world.workers),
        ready_replicas=sum(w.takes_traffic for w in world.workers),
        proved_replicas=proved,
        quarantined_replicas=_quarantined(world),
        selector=f"{FLEET_LABEL}={fleet.name}",
        target=target,
        latest=newest,
        followed=following.followed(world, newest, rollout),
        retention=retention.retention(world),
        trainer_target=_trainer_target(world),
        trainer_pause=_trainer_pause(world),
        trainer_rejected=_trainer_rejected(world),
        self_test=self_test_of(world),
        token_revision=_token_revision(world),
        serving=_serving(world),
        proved=f"{proved}/{len(world.desired)}",
        skew=version_order.skew(world),
        rollout=rollout_history.rollout_status(world, rollout, now),
        history=rollout_history.history(world, rollout),
        workers=[_worker(w, world) for w in listed],
        adapters=lora.statuses(world),
        workers_truncated=len(world.workers) - len(listed),
        summary=_column(conditions.summary(world, verdicts)),
        conditions=conditions.dated(
            verdicts, fleet.status.conditions, generation=fleet.generation, now=now
        ),
    )


def _column(summary: str) -> str:
    return summary if len(summary) <= _SUMMARY_LIMIT else f"{summary[: _SUMMARY_LIMIT - 1]}…"


def _quarantined(world: World) -> int:
    exceptional = (*world.exceptional, *world.surplus)
    return sum(phase_of(w) is Phase.QUARANTINED for w in exceptional)


def _listed(world: World) -> list[Worker]:
    """Return the workers that status lists: all, or the worst."""
    limit = world.fleet.spec.status_worker_limit
    if len(world.workers) <= limit:
        return list(world.workers)
    # A plain worker serves: only the first of them can be among the worst.
    plain = [w for w in world.desired if w.is_plain]
    worst = [*world.exceptional, *world.surplus, *plain[:limit]]
    return sorted(worst, key=_worst_first)[:limit]


def abandoned(fleet: Fleet, why: str, moment: float) -> FleetStatus:
    """Return the last status with the condition that the fleet's driver has stopped."""
    verdict = conditions.abandoned(why)
    (stalled,) = conditions.dated(
        [verdict],
        fleet.status.conditions,
        generation=fleet.generation,
        now=time_of(moment),
    )
    # The other conditions are about the generation that was last observed.
    others = [c for c in fleet.status.conditions if c.type not in {STALLED, RECONCILING}]
    update = {
        "observed_generation": fleet.generation,
        "summary": f"Stalled: {verdict.reason}",
        "conditions": [*others, stalled],
    }
    return fleet.status.model_copy(update=update)


def unread(raw: Raw, error: ValidationError, moment: float) -> dict[str, Any] | None:
    """Return the merge patch that reports a fleet whose object cannot be parsed.

    None if status reports it already. The patch changes nothing else in status.
    """
    metadata, status = raw["metadata"], raw.get("status") or {}
    known = [c for c in status.get("conditions") or () if isinstance(c, dict)]
    since = time_of(moment)
    for one in known:
        if (one.get("type"), one.get("status")) == (STALLED, "True"):
            since = one.get("lastTransitionTime", since)
    message = invalid_object.message(error)
    condition = {
        "type": STALLED,
        "status": "True",
        "reason": invalid_object.REASON,
        "message": message[: conditions.MESSAGE_LIMIT],
        "lastTransitionTime": since,
        "observedGeneration": metadata["generation"],
    }
    if condition in known:
        return None
    others = [c for c in known if c.get("type") not in {STALLED, RECONCILING}]
    update = {
        "observedGeneration": metadata["generation"],
        "summary": f"Stalled: {invalid_object.REASON}",
        "conditions": [*others, condition],
    }
    version = {"resourceVersion": metadata["resourceVersion"]}
    return {"metadata": version, "status": update}


def in_deletion(raw: Raw) -> dict[str, Any] | None:
    """Return the merge patch that reports what keeps a fleet that is being deleted.

    None if status reports it already. The patch changes nothing else in status.
    """
    metadata, status = raw["metadata"], raw.get("status") or {}
    finalizers = ", ".join(metadata.get("finalizers") or ())
    summary = _column(f"Deleting, kept by finalizers: {finalizers}")
    if status.get("summary") == summary:
        return None
    version = {"resourceVersion": metadata["resourceVersion"]}
    return {"metadata": version, "status": {"summary": summary}}


def _trainer_target(world: World) -> TrainerTarget | None:
    """Return the trainer's target, which ends once the spec names or follows a version."""
    return world.fleet.status.trainer_target if world.fleet.is_free else None


def _trainer_pause(world: World) -> TrainerPause | None:
    """Return the trainer's pause; after its end it stays until every worker has resumed."""
    pause = world.fleet.status.trainer_pause
    if pause is None or world.pause is not None:
        return pause
    is_left = any(w.is_changing for w in world.exceptional)
    return pause.model_copy(update={"ending": True}) if is_left else None


def _trainer_rejected(world: World) -> TrainerRejected | None:
    """Return the last trainer that a worker rejected; a fleet without a target has none."""
    if world.fleet.target is None:
        return None
    known = world.fleet.status.trainer_rejected
    reports = [(w.name, w.report.rejected_trainer) for w in world.exceptional if w.report]
    found = [
        TrainerRejected(worker=name, client=one.client, call=one.call, at=time_of(one.at))
        for name, one in reports
        if one is not None
    ]
    newest = max(found, key=lambda one: one.at_epoch, default=None)
    if known is None or newest is None:
        return newest or known
    is_same = newest.client == known.client
    is_newer = newest.at_epoch - known.at_epoch > (_ONE_TRAINER_S if is_same else 0.0)
    return newest if is_newer else known


def self_test_of(world: World) -> SelfTestStatus | None:
    """Return a self-test's result for the current pod template; a failure before a success."""
    found = [
        worker.report.self_test
        for worker in world.desired
        if worker.is_live
        and worker.pod is not None
        and worker.pod.template_hash == world.template_hash
        and worker.report is not None
        and worker.report.self_test is not None
        and worker.report.self_test.passed is not None
    ]
    if found:
        worst = min(found, key=lambda test: test.passed is True)
        return SelfTestStatus.of(worst, world.template_hash)
    known = world.fleet.status.self_test
    return known if known is not None and known.template == world.template_hash else None


def _token_revision(world: World) -> str | None:
    """Return the revision of the token that all know; the one before while they differ."""
    asked = [w for w in world.workers if w.pod and w.pod.answers_at and not w.pod.terminating]
    known = [w.report.token_revision if w.is_live and w.report else None for w in asked]
    is_known = all(revision == world.token_revision for revision in known)
    return world.token_revision if is_known else world.fleet.status.token_revision


def _has_proved(worker: Worker, target: str) -> bool:
    return worker.is_settled and (not target or worker.proved == target)


def _worst_first(worker: Worker) -> tuple[int, int]:
    return BADNESS[phase_of(worker)], worker.ordinal


def _serving(world: World) -> str:
    versions = {conditions.served_by(w) for w in world.workers if w.takes_traffic} - {None}
    return versions.pop() or "" if len(versions) == 1 else ""


def _worker(worker: Worker, world: World) -> WorkerStatus:
    complaint = complaint_of(worker, world)
    message = complaint[:_WORKER_MESSAGE_LIMIT] if complaint else None
    if worker.last is not None:
        now = {"phase": phase_of(worker), "ready": worker.takes_traffic, "message": message}
        return worker.last.model_copy(update=now)
    change = worker.report.last_change if worker.report else None
    proof = worker.report.proof if worker.report else None
    # A proof of another version says nothing about the one in status.
    if proof is not None and proof.version != worker.proved:
        proof = None
    return WorkerStatus(
        name=worker.name,
        phase=phase_of(worker),
        version=worker.proved,
        verified_by=None if proof is None else [str(one) for one in proof.verified_by],
        read_back_percent=_read_back_percent(proof),
        ready=worker.takes_traffic,
        load_exits=_load_exits(worker),
        window_ms=round(change.timings.window_s * 1000) if change else None,
        adapters=lora.served_by(worker),
        message=message,
    )


def _load_exits(worker: Worker) -> int | None:
    exits = worker.report.exits if worker.report else None
    return None if exits is None or worker.is_settled else exits.count


def patch_of(status: FleetStatus) -> dict[str, Any]:
    """Return the status as a merge patch that also removes absent fields, nested ones too."""
    body: dict[str, Any] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    _remove_absent(body, status)
    return body


def _remove_absent(body: dict[str, Any], model: BaseModel) -> None:
    """Set absent fields to null; a patch replaces lists as a whole, so theirs need none."""
    for name, field in type(model).model_fields.items():
        key, value = str(field.alias), getattr(model, name)
        body.setdefault(key, None)
        if isinstance(value, BaseModel):
            _remove_absent(body[key], value)


def _read_back_percent(proof: Proof | None) -> int | None:
    """Return the percentage rounded down, so that 100 means everything."""
    return None if proof is None or proof.read_share is None else int(proof.read_share * 100)
