"""Runs plans concurrently, prints each result, and sums up."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from kubernetes.aio import client, config

from dev import cache
from dev.kubernetes import apiserver
from dev.steps import say
from faults.cell import Materials
from faults.modes import MODES, Mode
from faults.plan import Place, Plan
from faults.run import Outcome, Reference, Stage, reference, struck
from faults.workloads import until
from rlfleet_operator.kube.client import KubeClient

CONTROLLERS = apiserver.GARBAGE_COLLECTION + apiserver.SERVICE_ACCOUNTS
FAILED = Path(__file__).resolve().parent / "failed"
TURNS = 3
"""How many of the modes that take turns are tried at each request."""
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
T = TypeVar("T")
R = TypeVar("R")


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Start what all runs share."""
    with (
        apiserver.running(controllers=CONTROLLERS) as plane,
        tempfile.TemporaryDirectory(prefix="rlfleet-faults-") as scratch,
    ):
        settings = client.Configuration()
        await config.load_kube_config(str(plane.kubeconfig), client_configuration=settings)
        settings.connection_pool_maxsize = 64
        kube = KubeClient(client.ApiClient(settings))
        try:
            for file in sorted((cache.REPOSITORY / "crds").glob("*.yaml")):
                await _define(kube, yaml.safe_load(file.read_text()))
            root = Path(scratch)
            yield Stage(plane, kube, Materials.write(root / "checkpoints"), root / "runs")
        finally:
            await kube.close()


async def _define(kube: KubeClient, definition: dict[str, Any]) -> None:
    """Make a kind known, and wait until it is served."""
    await kube.create(_CRDS, definition)

    async def is_served() -> bool:
        found = await kube.get(f"{_CRDS}/{definition['metadata']['name']}")
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    await until(is_served, "the definition is established")
    await asyncio.sleep(0.5)


async def abreast(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], width: int
) -> AsyncIterator[R]:
    """Yield what ``work`` makes of each item, ``width`` of them under way at once."""
    limit = asyncio.Semaphore(width)

    async def one(item: T) -> R:
        async with limit:
            return await work(item)

    for done in asyncio.as_completed([asyncio.ensure_future(one(item)) for item in items]):
        yield await done


async def references(on: Stage, workloads: Iterable[str], width: int) -> dict[str, Reference]:
    """Run the workloads without faults."""
    found = {}
    async for one in abreast(workloads, lambda name: reference(on, name), width):
        say(f"{one.workload}: {len(one.places)} requests, {len(one.masked)} fields masked")
        found[one.workload] = one
    return found


def plans(known: Mapping[str, Reference], *, every: bool) -> list[Plan]:
    """Return a plan for each request and mode; not ``every`` mode, the lesser ones take turns."""
    made: list[Plan] = []
    used: Counter[tuple[str, str]] = Counter()
    for name, one in sorted(known.items()):
        for place in one.places:
            fitting = [mode for mode in MODES.values() if _fits(mode, place)]
            chosen = fitting if every else _turn(fitting, used)
            made += [_plan(name, place, mode) for mode in chosen]
    return made


def kept() -> list[Plan]:
    """Return the plans that have shown a bug once."""
    return [Plan.read(path) for path in sorted((Path(__file__).parent / "plans").glob("*.yaml"))]


def _fits(mode: Mode, place: Place) -> bool:
    step = place.key.partition(" ")[0]
    return mode.side is place.side and (not mode.steps or step in mode.steps)


def _turn(modes: Sequence[Mode], used: Counter[tuple[str, str]]) -> list[Mode]:
    """Return the modes that are always tried, and the others that came least often so far."""
    others = [mode for mode in modes if not mode.always]
    picked = sorted(others, key=lambda mode: used[mode.side, mode.name])[:TURNS]
    used.update((mode.side, mode.name) for mode in picked)
    return [mode for mode in modes if mode.always] + picked


def _plan(workload: str, place: Place, mode: Mode) -> Plan:
    return Plan(
        workload=workload,
        side=place.side,
        key=place.key,
        occurrence=place.occurrence,
        mode=mode.name,
    )


async def carry_out(
    on: Stage, known: Mapping[str, Reference], chosen: Sequence[Plan], width: int
) -> list[Outcome]:
    """Run plans, and print the result of each."""
    outcomes: list[Outcome] = []

    async def one(plan: Plan) -> Outcome:
        return await struck(on, plan, known[plan.workload])

    async for outcome in abreast(chosen, one, width):
        outcomes.append(outcome)
        _print(outcome, len(outcomes), len(chosen))
        if not outcome.is_good:
            _keep(outcome)
    return outcomes


def _print(outcome: Outcome, number: int, total: int) -> None:
    name = outcome.plan.name if outcome.plan else ""
    verdict = "ok" if outcome.is_good else "NOT FIRED" if not outcome.has_fired else "FAILED"
    say(f"[{number:>4}/{total}] {verdict:<9} {outcome.seconds:5.1f} s  {name}")
    for line in outcome.broken:
        say(f"            {line}")


def _keep(outcome: Outcome) -> None:
    """Keep a plan that failed, with the ends of all logs."""
    if outcome.plan is not None:
        path = outcome.plan.write(FAILED)
        broken = "\n".join(outcome.broken)
        path.with_suffix(".log").write_text(f"{broken}\n\n{outcome.log}\n")


def classes(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Count the runs by side and kind of fault."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for outcome in outcomes:
        if outcome.plan is None:
            continue
        mode = MODES[outcome.plan.side, outcome.plan.mode]
        tally = counted.setdefault((mode.side, mode.group), Counter())
        tally["plans"] += 1
        tally["failed"] += bool(outcome.broken)
        tally["not_fired"] += not outcome.has_fired
    return [
        {"side": side, "fault": group, **{key: tally[key] for key in _COLUMNS}}
        for (side, group), tally in sorted(counted.items())
    ]


_COLUMNS = ("plans", "failed", "not_fired")
