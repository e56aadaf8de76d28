"""One condition before it is dated, and those that only sometimes are."""

from dataclasses import dataclass

from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout import version_order
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
    """One condition before it is dated."""

    type: str
    is_true: bool
    reason: str
    message: str


def sometimes(world: World) -> tuple[ConditionVerdict, ...]:
    """Return what is worth a word of the fleet while it is so."""
    found = (
        _paused(world),
        _untested(world),
        _held_up(world) or _degraded(world) or _adapters_failed(world),
    )
    return tuple(verdict for verdict in found if verdict is not None)


def forbidden(world: World) -> ConditionVerdict | None:
    """Return why the spec itself forbids what it asks for."""
    found = version_order.objection(world)
    if found is None:
        return None
    return ConditionVerdict(STALLED, is_true=True, reason=found.reason, message=found.message)


def _untested(world: World) -> ConditionVerdict | None:
    """Return that rlfleet's suites never ran against the engines' release."""
    tests = (w.report.self_test for w in world.desired if w.is_live and w.report)
    found = next((test for test in tests if test is not None and not test.is_tested), None)
    if found is None:
        return None
    shown = "its reload passed the self-test" if found.passed else "its reload was not shown"
    message = f"rlfleet was not tested with {found.engine}; {shown}"
    return ConditionVerdict(UNTESTED, is_true=True, reason="UntestedRelease", message=message)


def _paused(world: World) -> ConditionVerdict | None:
    """Return until when the fleet is paused, and by whom."""
    pause = world.pause
    if pause is None:
        return None
    done = sum(w.is_kept for w in world.desired)
    message = (
        f"{done} of {len(world.desired)} workers are paused by a trainer"
        f" until {pause.until}, or until it resumes the fleet"
    )
    return ConditionVerdict(PAUSED, is_true=True, reason="PausedByTrainer", message=message)


def _held_up(world: World) -> ConditionVerdict | None:
    """Return which workers have kept their requests waiting for long."""
    if not waiting_requests.held_up(world):
        return None
    refused = world.pause.refused if world.pause else None
    why = f"the trainer's last update was rejected ({refused}); " if refused else ""
    message = (
        f"{waiting_requests.said(world)}: {why}the trainer that paused them has to update or"
        " resume them, or to name a version in spec.weightVersion"
    )
    return ConditionVerdict(DEGRADED, is_true=True, reason=waiting_requests.REASON, message=message)


def _degraded(world: World) -> ConditionVerdict | None:
    """Return which workers serve weights that are too old (spec.staleness)."""
    whys = version_order.stale(world)
    stale = [w for w in world.desired if w.name in whys]
    if not stale:
        return None
    first = stale[0].name
    message = f"{len(stale)} workers serve weights that are too old; {first}: {whys[first]}"
    return ConditionVerdict(DEGRADED, is_true=True, reason="StaleServing", message=message)


def _adapters_failed(world: World) -> ConditionVerdict | None:
    """Return which adapters could not be loaded."""
    found = lora.failed(world)
    if not found:
        return None
    worker, one, problem = found[0]
    message = (
        f"{len(found)} adapters of workers are not loaded; {worker.name} does not serve"
        f" {one.name} {one.version}: {problem.code}: {problem.message}"
    )
    return ConditionVerdict(DEGRADED, is_true=True, reason="AdaptersFailed", message=message)
