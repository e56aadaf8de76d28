"""A condition without its time, and the conditions that are present only at times."""

from dataclasses import dataclass

from rlfleet_operator.core.model.world import ENGINE_CONTAINER, TEMPLATE_ANNOTATION, Worker, World
from rlfleet_operator.core.rollout import following, version_order
from rlfleet_operator.core.status import waiting_requests
from rlfleet_operator.core.strategy import lora

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
DEGRADED = "Degraded"
PAUSED = "Paused"
SYNCED = "WeightsSynced"
UNTESTED = "EngineUntested"


@dataclass(frozen=True, slots=True)
class ConditionVerdict:
    """A condition without its time and generation."""

    type: str
    reason: str
    message: str
    is_true: bool = True


def sometimes(world: World) -> tuple[ConditionVerdict, ...]:
    """Return Paused, EngineUntested and Degraded where they are true."""
    found = (
        _paused(world),
        _untested(world),
        _held_up(world) or _blind(world) or _degraded(world) or _adapters_failed(world),
    )
    return tuple(verdict for verdict in found if verdict is not None)


def refused(world: World) -> str | None:
    """Return why the fleet's objects are not as declared: rejected, or changed by another."""
    return world.trouble or next(map(_unmarked, filter(_is_unmarked, world.desired)), None)


def _is_unmarked(worker: Worker) -> bool:
    pod = worker.pod
    return pod is not None and not pod.template_hash and not pod.terminating


def _unmarked(worker: Worker) -> str:
    return (
        f"Pod {worker.name} lost its annotation {TEMPLATE_ANNOTATION}: delete the pod. If the next"
        " one has none either, mend the mutating webhook or policy that removes it"
    )


def forbidden(world: World) -> ConditionVerdict | None:
    """Return Stalled if the spec forbids the version that it requests."""
    found = version_order.objection(world)
    if found is None:
        return None
    return ConditionVerdict(STALLED, found.reason, found.message)


def _untested(world: World) -> ConditionVerdict | None:
    """Return EngineUntested if rlfleet was not tested with the engines' release."""
    tests = (w.report.self_test for w in world.desired if w.is_live and w.report)
    found = next((test for test in tests if test is not None and not test.is_tested), None)
    if found is None:
        return None
    shown = "its reload passed the self-test" if found.passed else "its reload was not tested"
    message = f"{found.engine} is untested with rlfleet; {shown}"
    return ConditionVerdict(UNTESTED, "UntestedRelease", message)


def _paused(world: World) -> ConditionVerdict | None:
    """Return Paused while a trainer pauses the fleet, with its end."""
    pause = world.pause
    if pause is None:
        return None
    done = sum(w.is_kept for w in world.desired)
    message = (
        f"{done} of {len(world.desired)} workers paused by a trainer"
        f" until {pause.until}, or until the trainer resumes the fleet"
    )
    return ConditionVerdict(PAUSED, "PausedByTrainer", message)


def _held_up(world: World) -> ConditionVerdict | None:
    """Return Degraded if requests have been waiting at closed gates for long."""
    if not waiting_requests.held_up(world):
        return None
    message = f"{waiting_requests.message(world)}; {_way_out(world)}"
    return ConditionVerdict(DEGRADED, waiting_requests.REASON, message)


def _way_out(world: World) -> str:
    """Return what ends the wait: the trainer that paused the fleet, or the operator's change."""
    target, pause = world.fleet.target, world.pause
    if target is not None and pause is None:
        name = waiting_requests.longest(world).name
        return (
            f"its change (target {target}) takes long; see vLLM's log:"
            f" kubectl logs {name} -c {ENGINE_CONTAINER}"
        )
    refused = pause.refused if pause else None
    why = f"the trainer's last update was rejected ({refused}); " if refused else ""
    return (
        f"{why}the trainer must update or resume the workers,"
        " or name a version in spec.weightVersion"
    )


def _blind(world: World) -> ConditionVerdict | None:
    """Return Degraded if no worker can look for the trainer's versions."""
    found = following.blindness(world)
    if found is None:
        return None
    worker, problem = found
    weights = world.fleet.spec.weights
    other = ", or accept what is offered" if weights is not None and weights.acknowledge else ""
    message = (
        f"no worker can look for new versions{other}, so that the fleet stays at its own;"
        f" {worker.name}: {problem.code}: {problem.message}"
    )
    return ConditionVerdict(DEGRADED, "StoreUnreadable", message)


def _degraded(world: World) -> ConditionVerdict | None:
    """Return Degraded if workers serve stale weights (spec.staleness)."""
    whys = version_order.stale(world)
    stale = [w for w in world.desired if w.name in whys]
    if not stale:
        return None
    first = stale[0].name
    count = f"{len(stale)} of {len(world.desired)} workers"
    message = f"{count} serving stale weights; {first}: {whys[first]}"
    return ConditionVerdict(DEGRADED, "StaleServing", message)


def _adapters_failed(world: World) -> ConditionVerdict | None:
    """Return Degraded if workers failed to load adapters."""
    found = lora.failed(world)
    if not found:
        return None
    worker, one, problem = found[0]
    message = (
        f"adapter {one.name} {one.version} failed to load on {worker.name}"
        f" (failed loads: {len(found)}): {problem.code}: {problem.message}"
    )
    return ConditionVerdict(DEGRADED, "AdaptersFailed", message)
