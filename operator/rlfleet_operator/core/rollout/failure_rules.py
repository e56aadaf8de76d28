"""When a rollout has to be stopped: its version failed, or the fleet does not pause."""

from dataclasses import dataclass

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.commands import is_prepared
from rlfleet_operator.core.model.worker_phase import complaint_of
from rlfleet_operator.core.model.world import RUNNING, Worker, World
from rlfleet_operator.core.rollout import barrier_progress, budget
from rlfleet_operator.core.rollout.cohorts import canaries, is_promoted
from rlfleet_operator.core.rollout.rollout import COMPLETED, Reason, Rollout
from rlfleet_operator.crd.rollout_spec import OnFailure, Strategy

_PAUSE_MARGIN_S = 5.0
"""How much later than a pause's own timeout the fleet's pause counts as failed."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a rollout shall not go on."""

    why: str
    is_of_version: bool
    """Whether the version is to blame; else nothing was loaded."""


TRIES = 3
"""How often engines may end while they load a version that nothing speaks for: it is bad then."""


def failures(world: World, version: str, operation: str) -> list[Worker]:
    """Return the workers on which the version itself failed.

    A process that ends is not a bad version; one that ends each time is, until the version
    was proved somewhere.
    """
    refused = [w for w in world.desired if w.failed(version, operation)]
    ended = exited(world, version, operation)
    is_bad = sum(w.exits(version, operation) for w in ended) >= TRIES
    return [*refused, *ended] if is_bad and not _is_acquitted(world, version) else refused


def exited(world: World, version: str, operation: str) -> list[Worker]:
    """Return the workers whose engines ended while they loaded the version, and serve nothing."""
    return [w for w in world.desired if w.exits(version, operation)]


def _is_acquitted(world: World, version: str) -> bool:
    """Return whether the version has been proved, in this rollout or in one before."""
    past = world.fleet.status.history
    return holds(world, version) or any(
        one.to == version and one.result == COMPLETED for one in past
    )


def is_doubted(world: World, version: str, operation: str) -> bool:
    """Return whether a version failed on a worker and was proved on none.

    One proof of the version anywhere acquits it, also if its worker does not answer any more:
    then a failure is the worker's own.
    """
    return not holds(world, version) and bool(failures(world, version, operation))


def is_unheard(world: World, rollout: Rollout) -> bool:
    """Return whether a version that holds nowhere may fail, or have failed, on one not charged for.

    An operator that takes over was told of no failure, and knows of no command of the one
    before. Whose containers run is waited for until its silence has lasted.
    """
    if holds(world, rollout.to):
        return False
    return any(_is_unheard(w) for w in world.desired)


def _is_unheard(worker: Worker) -> bool:
    pod = worker.pod
    if pod is None or pod.terminating or pod.address is None or pod.phase != RUNNING:
        return False
    if not worker.reachable:
        return worker.silence is None
    return worker.is_busy and not pod.weights_ready


def holds(world: World, version: str) -> bool:
    """Return whether a worker of the fleet has proved the version."""
    return any(w.report is not None and w.report.proved == version for w in world.desired)


def is_blocked(world: World, rollout: Rollout) -> bool:
    """Return whether no further worker may be taken out for this rollout, for now or for good.

    A worker whose engine ended serves nothing any more: it is the one to try the version again.
    """
    return is_condemned(world, rollout) or _is_tried_again(world, rollout)


def _is_tried_again(world: World, rollout: Rollout) -> bool:
    ended = exited(world, rollout.to, rollout.operation)
    if len(ended) > budget.max_unavailable(world.fleet.spec):
        return True
    return not holds(world, rollout.to) and any(is_expected(w, rollout) for w in ended)


def is_expected(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker whose engine ended is about to try the version again."""
    count = worker.exits(rollout.to, rollout.operation)
    is_back = worker.pod is not None and worker.pod.is_active and worker.silence is None
    return 0 < count < TRIES and is_back


def is_condemned(world: World, rollout: Rollout) -> bool:
    """Return whether the rollout has to be stopped once no try is under way."""
    failed = failures(world, rollout.to, rollout.operation)
    return is_doubted(world, rollout.to, rollout.operation) or len(failed) > limit(world, rollout)


def limit(world: World, rollout: Rollout) -> int:
    """Return how many workers may fail before the rollout is stopped."""
    spec = world.fleet.spec
    if not is_promoted(world):
        return 0
    if spec.rollout.max_failed is not None:
        return budget.share(spec.rollout.max_failed, spec.replicas)
    if spec.rollout.on_failure is OnFailure.QUARANTINE or rollout.reason is Reason.ROLLBACK:
        return budget.max_unavailable(spec)
    return 0


def stop(world: World, rollout: Rollout) -> Stop | None:
    """Return why the rollout has to be stopped now; None while it may go on.

    Tries under way are waited for: one of them may acquit the version.
    """
    overdue = _pause_overdue(world, rollout)
    if overdue is not None:
        return overdue
    if any(_is_trying(w, rollout) for w in world.desired) or not is_condemned(world, rollout):
        return None
    failed = failures(world, rollout.to, rollout.operation)
    first = f"{failed[0].name}: {complaint_of(failed[0], world)}"
    who = "canary" if failed[0] in canaries(world) and not is_promoted(world) else "worker"
    count = f"{len(failed)} {who}s" if len(failed) > 1 else f"a {who}"
    return Stop(f"{rollout.to} failed on {count}; {first}", is_of_version=True)


def _is_trying(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker may still prove the version; one that has is only to be opened."""
    if worker.is_kept or worker.silence:
        # One that has not answered for a while keeps no version up.
        return False
    if worker.stage is Stage.PAUSED and not worker.is_busy:
        # It may be stuck, or left on the way to another version, or have lost what it prepared.
        return is_prepared(worker, rollout.to) and not barrier_progress.has_stuck(worker, rollout)
    return worker.is_changing and (worker.stage is not Stage.PROVED or worker.is_busy)


def _pause_overdue(world: World, rollout: Rollout) -> Stop | None:
    """Return why a Barrier cannot be had: not all workers pause in time."""
    if not _waits_for_pauses(world, rollout):
        return None
    for worker in world.desired:
        failure = _failed_pause(worker, rollout)
        if failure is not None:
            return Stop(f"{worker.name} did not pause: {failure.message}", is_of_version=False)
    timeout_s = world.fleet.spec.rollout.timeouts.pause_seconds
    if _longest_pause_s(world) <= timeout_s + _PAUSE_MARGIN_S:
        return None
    members = barrier_progress.team(world, rollout)
    missing = [w.name for w in members if w.is_busy or w.stage is not Stage.PAUSED]
    return Stop(
        f"not all workers paused within {timeout_s} s"
        f" (rollout.timeouts.pauseSeconds); missing: {', '.join(missing[:5]) or 'none'}",
        is_of_version=False,
    )


def _waits_for_pauses(world: World, rollout: Rollout) -> bool:
    """Return whether a Barrier waits until all workers have paused, for no longer than allowed.

    A fleet that its trainer has paused stays so for as long as the trainer likes.
    """
    is_barrier = world.fleet.spec.rollout.strategy is Strategy.BARRIER
    is_paused_by_trainer = world.fleet.status.trainer_pause is not None
    return is_barrier and not is_paused_by_trainer and barrier_progress.is_gathering(world, rollout)


def _longest_pause_s(world: World) -> float:
    paused = (w.report for w in world.desired if w.stage is Stage.PAUSED)
    return max((report.paused_s or 0.0 for report in paused if report), default=0.0)


def _failed_pause(worker: Worker, rollout: Rollout) -> Problem | None:
    """Return why a worker did not pause for the rollout.

    None for one whose engine has ended: it is out, and no worker waits for it.
    """
    failure = worker.failure_in(rollout.operation)
    is_of_pause = failure is not None and failure.code in {Code.PAUSE_FAILED, Code.FLUSH_FAILED}
    return failure if is_of_pause and worker.stage is not Stage.DOWN else None
