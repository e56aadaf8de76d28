"""The workloads: changes that users make to fleets, with their preparations and end conditions.

A step waits only for what it needs, so that it also continues after a fault has delayed it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from faults.cell import BAD, BREAKING, Cell
from rlfleet_operator.kube.client import Json

FLEET = "qwen"
SECOND = "mini"
STEP_S = 90.0
"""How long a step may wait for what it needs to see."""
Act = Callable[[Cell], Awaitable[None]]
Done = Callable[[Cell], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing that a user does."""

    name: str
    prepare: Act
    """Before anything is recorded or struck."""
    act: Act
    done: Done
    free: str = r"^$"
    """What may end in one way or another, as a pattern of paths."""
    is_barrier: bool = False
    """All change together, or none does."""


class Stuck(Exception):  # noqa: N818 - it reads as what happened
    """A step waited in vain."""


async def until(is_so: Callable[[], Awaitable[bool]], what: str, timeout_s: float = STEP_S) -> None:
    """Wait for something; Stuck when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not await is_so():
        if time.monotonic() > deadline:
            raise Stuck(f"timeout after {timeout_s:.0f} s: {what}")
        await asyncio.sleep(0.05)


def _condition(fleet: Json | None, kind: str) -> bool:
    """Return whether a condition is true for the current generation."""
    if fleet is None:
        return False
    conditions = (fleet.get("status") or {}).get("conditions") or ()
    now = fleet["metadata"]["generation"]
    return any(
        c["type"] == kind and c["status"] == "True" and c["observedGeneration"] == now
        for c in conditions
    )


async def _synced(cell: Cell, name: str = FLEET) -> bool:
    fleet = await cell.get(name)
    phase = ((fleet or {}).get("status") or {}).get("rollout", {}).get("phase")
    return _condition(fleet, "WeightsSynced") and phase == "Completed"


async def _is_recorded(cell: Cell, version: str) -> bool:
    fleet = await cell.get(FLEET)
    rollout = ((fleet or {}).get("status") or {}).get("rollout") or {}
    return bool(rollout.get("to") == version)


def _proves(cell: Cell, version: str) -> bool:
    written = [cell.worker(name).written() for name in cell.hollow()]
    return any(w is not None and w.state.get("proved") == version for w in written)


async def _has_begun(cell: Cell, version: str) -> bool:
    """Return whether a worker has changed, or the rollout has stopped."""
    return _proves(cell, version) or _condition(await cell.get(FLEET), "Stalled")


async def _nothing(_cell: Cell) -> None:
    return


def _fleet(replicas: int = 2, name: str = FLEET, **rollout: object) -> Act:
    async def prepare(cell: Cell) -> None:
        await cell.create(name, rollout, replicas=replicas)
        await until(lambda: _synced(cell, name), f"{name} is synced")

    return prepare


# --- what they do ---------------------------------------------------------------------------------


async def _create(cell: Cell) -> None:
    await cell.create(FLEET, {})


async def _change(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion="step-2")


async def _scale_up_in_rollout(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion="step-2")
    await until(lambda: _is_recorded(cell, "step-2"), "the rollout is on record")
    await cell.patch(FLEET, replicas=3)


async def _scale_down_in_rollout(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion="step-2")

    await until(lambda: _has_begun(cell, "step-2"), "a worker has changed")
    await cell.patch(FLEET, replicas=2)


async def _bad_then_good(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion=BAD)

    async def is_stalled() -> bool:
        return _condition(await cell.get(FLEET), "Stalled")

    await until(is_stalled, "the bad checkpoint is refused")
    await cell.patch(FLEET, weightVersion="step-2")


async def _delete_in_rollout(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion="step-2")
    await until(lambda: _is_recorded(cell, "step-2"), "the rollout is on record")
    await cell.delete(FLEET)


async def _supersede(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion="step-2")

    await until(lambda: _has_begun(cell, "step-2"), "a worker has changed")
    await cell.patch(FLEET, weightVersion="step-3")


async def _engine_dies(cell: Cell) -> None:
    await cell.worker(f"{FLEET}-0").lose_engine()


async def _template(cell: Cell) -> None:
    await cell.patch(FLEET, template={"metadata": {"annotations": {"team": "rl"}}})


async def _held(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion="step-2", rollout={"paused": True})

    async def are_prepared() -> bool:
        written = [cell.worker(name).written() for name in cell.hollow()]
        return all(w is not None and w.state.get("prepared") == "step-2" for w in written)

    await until(are_prepared, "every worker has prepared the version")
    await cell.patch(FLEET, rollout={"paused": False})


async def _breaking(cell: Cell) -> None:
    await cell.patch(FLEET, weightVersion=BREAKING)


async def _two_change(cell: Cell) -> None:
    await asyncio.gather(
        cell.patch(FLEET, weightVersion="step-2"), cell.patch(SECOND, weightVersion="step-3")
    )


# --- how to see that they are done ----------------------------------------------------------------


async def _is_gone(cell: Cell) -> bool:
    return await cell.get(FLEET) is None and not cell.hollow()


async def _both_synced(cell: Cell) -> bool:
    return await _synced(cell) and await _synced(cell, SECOND)


async def _two_fleets(cell: Cell) -> None:
    await asyncio.gather(_fleet(1)(cell), _fleet(1, SECOND)(cell))


async def _is_back(cell: Cell) -> bool:
    written = cell.worker(f"{FLEET}-0").written()
    is_open = written is not None and written.state["stage"] == "Open"
    return cell.worker(f"{FLEET}-0").is_up and is_open and await _synced(cell)


async def _is_replaced(cell: Cell) -> bool:
    pods = cell.hollow().values()
    teams = [p.raw["metadata"].get("annotations", {}).get("team") for p in pods]
    return teams == ["rl", "rl"] and await _synced(cell)


async def _is_rolled_back(cell: Cell) -> bool:
    rollout = ((await cell.get(FLEET) or {}).get("status") or {}).get("rollout") or {}
    return rollout.get("phase") == "RolledBack"


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("create", _nothing, _create, _synced),
        Workload("change", _fleet(), _change, _synced),
        Workload("scale-up", _fleet(), _scale_up_in_rollout, _synced),
        Workload("scale-down", _fleet(3), _scale_down_in_rollout, _synced),
        # Whichever worker refuses first is named.
        Workload(
            "bad-then-good", _fleet(), _bad_then_good, _synced, free=r"history\.\d+\.message$"
        ),
        Workload("delete", _fleet(), _delete_in_rollout, _is_gone),
        # Which version most workers serve is open at the moment of the second patch.
        Workload("supersede", _fleet(), _supersede, _synced, free=r"rollout\.from$|history\."),
        Workload("engine-dies", _fleet(), _engine_dies, _is_back),
        Workload("template", _fleet(), _template, _is_replaced),
        Workload("barrier", _fleet(strategy="Barrier"), _change, _synced, is_barrier=True),
        Workload("canary", _fleet(strategy="Canary"), _change, _synced),
        Workload("held", _fleet(), _held, _synced),
        # Whichever worker loads it first is named, and goes there and back.
        Workload(
            "rollback",
            _fleet(onFailure="Rollback"),
            _breaking,
            _is_rolled_back,
            free=r"status\..*message$|journal\.failure|journal\.state\.prepared$",
        ),
        Workload("two-fleets", _two_fleets, _two_change, _both_synced),
    )
}
