"""When a rollout must stop: its version failed, or the fleet does not pause."""

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
"""How long after the timeout of one worker's pause the fleet's pause has failed."""


@dataclass(frozen=True, slots=True)
class RolloutStop:
    """Why a rollout must stop."""

    why: str
    is_of_version: bool
    """Whether the version failed; else no worker loaded it."""


TRIES = 3
"""A version that no worker has proved counts as bad after so many exits of engines that load it."""


def failures(world: World, version: str, operation: str) -> list[Worker]:
    """Return the workers on which the version itself failed.

    One exit of an engine is no failure of the version; repeated exits are, unless the version
    was proved somewhere.
    """
    refused = [w for w in world.exceptional if w.failed(version, operation)]
    ended = exited(world, version, operation)
    is_bad = sum(w.exits(version, operation) for w in ended) >= TRIES
    return [*refused, *ended] if is_bad and not _was_proved(world, version) else refused


def exited(world: World, version: str, operation: str) -> list[Worker]:
    """Return the workers whose engines exited while they loaded the version, and serve nothing."""
    return [w for w in world.exceptional if w.exits(version, operation)]


def _was_proved(world: World, version: str) -> bool:
    """Return whether the version has been proved, in this rollout or in one before."""
    past = world.fleet.status.history
    return holds(world, version) or any(
        one.to == version and one.result == COMPLETED for one in past
    )


def failed_unproved(world: World, version: str, operation: str) -> bool:
    """Return whether a version failed on a worker and was proved on none.

    After one proof, even by a worker that no longer answers, failures count against workers.
    """
    return not holds(world, version) and bool(failures(world, version, operation))


def has_unknown_outcome(world: World, rollout: Rollout) -> bool:
    """Return whether an unproved version may have failed on a worker that has not reported.

    A new leader knows neither failures nor commands of the previous one. It waits for each worker
    with running containers until that counts as unreachable.
    """
    if holds(world, rollout.to):
        return False
    return any(map(_may_have_failed, world.exceptional))


def _may_have_failed(worker: Worker) -> bool:
    pod = worker.pod
    if pod is None or pod.terminating or pod.address is None or pod.phase != RUNNING:
        return False
    if not worker.reachable:
        return worker.silence is None
    return worker.is_busy and not pod.weights_ready


def holds(world: World, version: str) -> bool:
    """Return whether a worker of the fleet has proved the version."""
    if holds not in world.memo:
        reports = (w.report for w in world.desired)
        world.memo[holds] = frozenset(report.proved for report in reports if report)
    return version in world.memo[holds]


def is_blocked(world: World, rollout: Rollout) -> bool:
    """Return whether no further worker may be taken out for this rollout, now or ever.

    A worker whose engine exited serves nothing, so it retries the version before others try it.
    """
    return must_stop(world, rollout) or _is_tried_again(world, rollout)


def _is_tried_again(world: World, rollout: Rollout) -> bool:
    ended = exited(world, rollout.to, rollout.operation)
    if len(ended) > budget.max_unavailable(world.fleet.spec):
        return True
    return not holds(world, rollout.to) and any(is_expected(w, rollout) for w in ended)


def is_expected(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker whose engine exited is about to retry the version."""
    count = worker.exits(rollout.to, rollout.operation)
    is_back = worker.pod is not None and worker.pod.is_active and worker.silence is None
    return 0 < count < TRIES and is_back


def must_stop(world: World, rollout: Rollout) -> bool:
    """Return whether the rollout must stop once no worker is loading the version."""
    failed = failures(world, rollout.to, rollout.operation)
    return failed_unproved(world, rollout.to, rollout.operation) or len(failed) > limit(
        world, rollout
    )


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


def stop(world: World, rollout: Rollout) -> RolloutStop | None:
    """Return why the rollout must stop now; None while it may continue.

    Workers that are loading the version finish first, because one of them may prove it.
    """
    overdue = _pause_overdue(world, rollout)
    if overdue is not None:
        return overdue
    if any(_is_trying(w, rollout) for w in world.exceptional) or not must_stop(world, rollout):
        return None
    failed = failures(world, rollout.to, rollout.operation)
    kind = "canary " if failed[0] in canaries(world) and not is_promoted(world) else ""
    first = f"{kind}{failed[0].name}: {complaint_of(failed[0], world)}"
    count = f"{len(failed)} of {len(world.desired)} workers"
    return RolloutStop(f"{rollout.to} failed on {count}; {first}", is_of_version=True)


def _is_trying(worker: Worker, rollout: Rollout) -> bool:
    """Return whether a worker may still prove the version."""
    if worker.is_kept or worker.silence:
        # A worker that has been silent for a while must not delay the decision.
        return False
    if worker.stage is Stage.PAUSED and not worker.is_busy:
        # It may be stuck, paused for another version, or have lost what it prepared.
        return is_prepared(worker, rollout.to) and not barrier_progress.is_stuck(worker, rollout)
    return worker.is_changing and (worker.stage is not Stage.PROVED or worker.is_busy)


def _pause_overdue(world: World, rollout: Rollout) -> RolloutStop | None:
    """Return why a Barrier must stop: a pause failed, or took too long."""
    if not _waits_for_pauses(world, rollout):
        return None
    for worker in world.exceptional:
        failure = _failed_pause(worker, rollout)
        if failure is not None:
            return RolloutStop(
                f"{worker.name} did not pause: {failure.message}", is_of_version=False
            )
    timeout_s = world.fleet.spec.rollout.timeouts.pause_seconds
    # How long a trainer had paused a worker says nothing about this pause.
    is_left_paused = world.fleet.status.trainer_pause is not None
    if is_left_paused or _longest_pause_s(world) <= timeout_s + _PAUSE_MARGIN_S:
        return None
    members = barrier_progress.team(world, rollout)
    missing = [w.name for w in members if w.is_busy or w.stage is not Stage.PAUSED]
    return RolloutStop(
        f"the fleet's pause took over {timeout_s} s (rollout.timeouts.pauseSeconds);"
        f" not paused: {', '.join(missing[:5]) or 'none'}",
        is_of_version=False,
    )


def _waits_for_pauses(world: World, rollout: Rollout) -> bool:
    """Return whether a Barrier waits for pauses with a timeout.

    A pause by the trainer has its own end.
    """
    is_barrier = world.fleet.spec.rollout.strategy is Strategy.BARRIER
    is_its_own = is_barrier and world.pause is None
    return is_its_own and barrier_progress.is_gathering(world, rollout)


def _longest_pause_s(world: World) -> float:
    paused = (w.report for w in world.exceptional if w.stage is Stage.PAUSED)
    return max((report.paused_s or 0.0 for report in paused if report), default=0.0)


def _failed_pause(worker: Worker, rollout: Rollout) -> Problem | None:
    """Return why a worker did not pause for the rollout's version.

    None if its engine is down, as no worker waits for it.
    """
    failure = worker.failure_in(rollout.operation)
    if failure is None or failure.version != rollout.to or worker.stage is Stage.DOWN:
        return None
    return failure if failure.code in {Code.PAUSE_FAILED, Code.FLUSH_FAILED} else None
