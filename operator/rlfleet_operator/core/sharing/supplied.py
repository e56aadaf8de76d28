"""Adds to the commands of a pass from which workers each one receives its version."""

from collections.abc import Sequence
from dataclasses import replace

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.supply import Supply
from rlfleet_operator.core.model.actions import Prepare, WeightsCommand
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.sharing.lines import Member, supplies


def supplied(commands: Sequence[WeightsCommand], world: World) -> list[WeightsCommand]:
    """Return the commands, with a supply in each prepare of a fleet that shares versions."""
    weights = world.fleet.spec.weights
    if weights is None or not weights.sharing:
        return [*commands]
    asked = {c.version for c in commands if isinstance(c, Prepare)} - {BASE_VERSION}
    by_version = {v: _supplies(world, v, _receivers(commands, v)) for v in asked}
    return [
        replace(c, supply=by_version[c.version].get(c.worker))
        if isinstance(c, Prepare) and c.version in by_version
        else c
        for c in commands
    ]


def _supplies(world: World, version: str, asked: frozenset[str]) -> dict[str, Supply]:
    """Return each worker's supply; sidecars with and without TLS are kept apart."""
    found: dict[str, Supply] = {}
    for is_secure in (False, True):
        found |= supplies([*_members(world, version, asked, is_secure=is_secure)])
    return found


def _receivers(commands: Sequence[WeightsCommand], version: str) -> frozenset[str]:
    return frozenset(c.worker for c in commands if isinstance(c, Prepare) and c.version == version)


def _members(world: World, version: str, asked: frozenset[str], *, is_secure: bool) -> list[Member]:
    """Return the workers that hold the version, prepare it, or are to do so now."""
    found = []
    for worker in world.workers:
        holds, receives = _holds(worker, version), _receives(worker, version)
        address = worker.pod.answers_at if worker.pod is not None else None
        if not worker.is_live or worker.pod is None or address is None:
            continue
        if (worker.pod.tls_secret is not None) is not is_secure:
            continue
        if holds or receives or worker.name in asked:
            found.append(
                Member(
                    name=worker.name,
                    address=address_of(address, worker.pod.admin_port),
                    zone=worker.pod.topology[0],
                    node=worker.pod.topology[1],
                    ordinal=worker.ordinal,
                    holds=holds and worker.name not in asked,
                    receives=receives,
                )
            )
    return found


def address_of(host: str, port: int) -> str:
    """Return the address of the sidecar of a pod with this IP address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _holds(worker: Worker, version: str) -> bool:
    return worker.report is not None and version in worker.report.staged


def _receives(worker: Worker, version: str) -> bool:
    progress = worker.report.progress if worker.report is not None else None
    return progress is not None and progress.version == version
