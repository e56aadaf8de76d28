"""One run of one workload, with a fault or without, and the findings of its checks."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from dev.kubernetes.apiserver import ControlPlane
from dev.steps import StepFailed
from faults import endstate
from faults.cell import Cell, Materials
from faults.ledger import Ledger
from faults.modes import MODES, may_stop
from faults.monitor import Monitor
from faults.plan import Place, Plan
from faults.workloads import WORKLOADS, Stuck, until
from rlfleet_operator.kube.client import KubeClient

WITHIN_S = 30.0
"""The limit after the fault until the state must equal that of a run without it."""
REST_S = 3.0
"""The time afterwards in which nothing may be written."""
TRIES = 3
"""The number of runs in which to wait for a request that does not always come."""
REFERENCES = 3
"""The number of runs without faults, which give the requests and the end state."""
_SETTLE_S = 1.5
_QUIET_S = 0.7
_START_S = 15.0
_SLOWNESS = 4.0
"""The limit grows to so many times the workload's own time, for slow machines."""
_LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class Stage:
    """What all runs share."""

    plane: ControlPlane
    kube: KubeClient
    materials: Materials
    scratch: Path


@dataclass(frozen=True, slots=True)
class Reference:
    """A workload without faults."""

    workload: str
    places: list[Place]
    """Requests that came in each run."""
    end: dict[str, str]
    masked: set[str]
    reloads: dict[str, int]
    seconds: float
    """From its first act to its end, in the slowest run."""


@dataclass(slots=True)
class Outcome:
    """What became of one run."""

    plan: Plan | None
    seconds: float = 0.0
    has_fired: bool = False
    broken: list[str] = field(default_factory=list)
    """Every oracle's complaint; none means that all is well."""
    places: list[Place] = field(default_factory=list)
    end: dict[str, str] = field(default_factory=dict)
    reloads: dict[str, int] = field(default_factory=dict)
    log: str = ""
    act_seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the fault struck and nothing came of it."""
        return self.has_fired and not self.broken


async def reference(stage: Stage, workload: str) -> Reference:
    """Run a workload without faults; StepFailed when it does not end well by itself."""
    runs = [await run(stage, workload, None, None) for _ in range(REFERENCES)]
    for one in runs:
        if one.broken:
            raise StepFailed(f"{workload} without faults: {one.broken}\n{one.log}")
    first, *others = runs
    changing = set().union(*(endstate.unstable(first.end, one.end) for one in others))
    return Reference(
        workload,
        [place for place in first.places if all(place in set(one.places) for one in others)],
        first.end,
        changing,
        {name: max(one.reloads.get(name, 0) for one in runs) for name in first.reloads},
        max(one.act_seconds for one in runs),
    )


async def struck(stage: Stage, plan: Plan, wanted: Reference) -> Outcome:
    """Run a plan; again when its request did not come this time, as the order is not always one.

    How often a status is written depends on how fast the machine is: where a request does not
    come at all, the one before it of the same kind is struck. A run that failed is never repeated.
    """
    for occurrence in range(plan.occurrence, 0, -1):
        nearest = plan.model_copy(update={"occurrence": occurrence})
        for _ in range(TRIES):
            outcome = await run(stage, plan.workload, nearest, wanted)
            if outcome.has_fired or outcome.broken:
                return outcome
    return outcome


async def run(stage: Stage, workload: str, plan: Plan | None, wanted: Reference | None) -> Outcome:
    """Run a workload once, with the plan's fault in it."""
    begun, ledger, outcome = time.monotonic(), Ledger(plan), Outcome(plan)
    mode = MODES[plan.side, plan.mode] if plan else None
    cell = Cell(
        stage.plane,
        stage.kube,
        stage.materials,
        ledger,
        stage.scratch / f"{time.monotonic_ns()}",
        is_impatient=mode is not None and mode.silence,
    )
    async with cell:
        await _observed(cell, workload, wanted, outcome)
        outcome.log = _tail(cell)
    outcome.has_fired = plan is None or ledger.fired_at is not None
    outcome.places = ledger.places
    outcome.seconds = time.monotonic() - begun
    return outcome


async def _observed(cell: Cell, workload: str, wanted: Reference | None, outcome: Outcome) -> None:
    work = WORKLOADS[workload]
    async with Monitor(cell).looking() as monitor:
        try:
            await work.prepare(cell)
            await _at_rest(cell)
            cell.ledger.open()
            begun = time.monotonic()
            await work.act(cell)
            if wanted is None:
                await until(lambda: work.done(cell), "the workload is done")
            else:
                await _as_wanted(cell, wanted)
            outcome.act_seconds = time.monotonic() - begun
            await _at_rest(cell)
            outcome.broken += await _rest(cell, wanted)
        except Stuck as stuck:
            outcome.broken.append(str(stuck))
    outcome.broken += monitor.broken
    outcome.end = await endstate.seen(cell)
    outcome.reloads = {name: cell.worker(name).reloads for name in cell.hollow()}
    outcome.broken += _too_often(outcome, wanted) + _tracebacks(cell)


async def _as_wanted(cell: Cell, wanted: Reference) -> None:
    """Wait until the state equals that of a run without the fault."""
    begun = time.monotonic()
    left: list[str] = []
    within_s = max(WITHIN_S, _SLOWNESS * wanted.seconds)
    while (time.monotonic() - max(begun, cell.ledger.fired_at or 0)) < within_s:
        # Wait for a pause of writes first, because to read everything takes CPU.
        if cell.ledger.quiet_s > _QUIET_S:
            left = await _differences(cell, wanted)
            if not left:
                return
        await asyncio.sleep(0.2)
    left = left or await _differences(cell, wanted)
    raise Stuck(f"state differs {within_s:.0f} s after the fault: {'; '.join(left[:8])}")


async def _differences(cell: Cell, wanted: Reference) -> list[str]:
    plan, ledger = cell.ledger.plan, cell.ledger
    if (
        plan is not None
        and ledger.fired_at
        and ledger.quiet_s > _SETTLE_S
        and may_stop(plan, ledger.before_fault(), is_barrier=WORKLOADS[plan.workload].is_barrier)
        and await endstate.has_stopped_safely(cell)
    ):
        return []
    free = WORKLOADS[wanted.workload].free
    return endstate.differences(wanted.end, await endstate.seen(cell), wanted.masked, free)


async def _at_rest(cell: Cell) -> None:
    """Wait until the operator, after a restart too, has written nothing for a moment."""

    async def is_quiet() -> bool:
        ledger, begun_at = cell.ledger, cell.begun_at
        # A new driver writes its epoch, unless no fleet is left.
        has_begun = ledger.wrote_at > begun_at or time.monotonic() - begun_at > _START_S
        return has_begun and ledger.quiet_s > _SETTLE_S

    await until(is_quiet, "the operator comes to rest")


async def _rest(cell: Cell, wanted: Reference | None) -> list[str]:
    """Return the writes and changes at rest, where none may occur."""
    before = len(cell.ledger.places)
    await asyncio.sleep(REST_S if wanted else 0.0)
    written = cell.ledger.places[before:]
    found = [f"written at rest: {place.key}" for place in written]
    if wanted is not None:
        left = await _differences(cell, wanted)
        found += [f"changed at rest: {line}" for line in left[:8]]
    return found


def _too_often(outcome: Outcome, wanted: Reference | None) -> list[str]:
    if wanted is None:
        return []
    # The fault may have another worker go first, and so be loaded as often as that one was.
    most = max(wanted.reloads.values(), default=0)
    # An engine that dies in a load may hold the older version until another has tried the new.
    is_killed = outcome.plan is not None and outcome.plan.mode.startswith("engine-kill")
    most += int(is_killed)
    return [
        f"{name} was loaded {count} times, none more often than {most} without the fault"
        for name, count in outcome.reloads.items()
        if count > most + 1
    ]


def _tracebacks(cell: Cell) -> list[str]:
    logs = [cell.log, *sorted(cell.scratch.glob("pods/*/sidecar.log"))]
    return [
        f"a traceback in {log.relative_to(cell.scratch)}"
        for log in logs
        if log.exists() and "Traceback" in log.read_text(errors="replace")
    ]


def _tail(cell: Cell) -> str:
    """Return the end of every log."""
    logs = [cell.log, *sorted(cell.scratch.glob("pods/*/sidecar.log"))]
    told = {log: log.read_text(errors="replace") for log in logs if log.exists()}
    return "\n".join(
        f"--- {log.relative_to(cell.scratch)}\n" + "\n".join(text.splitlines()[-_LOG_LINES:])
        for log, text in told.items()
    )
