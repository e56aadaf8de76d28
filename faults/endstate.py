"""How a namespace and its workers stand, as one tree of plain values, and in what two differ."""

import json
import re
from collections.abc import Iterator
from typing import Any

from faults.cell import Cell
from faults.monitor import is_ready
from faults.workers import Kept
from rlfleet_contract.worker.problems import Code
from rlfleet_operator.errors import Missing
from rlfleet_operator.kube.client import Json, budget_path, core_path, fleet_path

BY_HAND = {
    r"metadata\.(uid|resourceVersion|creationTimestamp|generation|managedFields)": (
        "the API server gives it out anew each time"
    ),
    r"ownerReferences\.\d+\.uid": "the same",
    r"clusterIPs?(\.\d+)?$": "the same",
    r"(Time|At|At_?|_at)$": "a time",
    r"rollout\.notBefore$": "a time, there if a change came within four seconds of another",
    r"([a-z]Ms|_s|[sS]econds)$": "a measured time",
    r"podIPs?(\.|$)": "the node takes the next free address",
    r"state\.boot$": "names a start of an engine",
    r"data\.token$": "drawn by chance",
    r"\.last_change(\.|$)": "a record that a sidecar killed after the last step cannot write",
    r"status\.epoch$": "raised by each operator that takes the fleet over",
    r"proof\.(logprobs|tokens|tolerance)(\.|$)": "the probe is as long as the engine is quick",
    r"verified_by|verifiedBy": "whoever comes first has no peer to be compared with",
}
"""What is never compared, and why; the rest of what differs between two sound runs is found."""
BY_HAND_PATTERN = re.compile("|".join(BY_HAND))


async def seen(cell: Cell) -> dict[str, str]:
    """Return every leaf of everything, by its path."""
    namespace = cell.namespace
    collections = {
        "fleets": fleet_path(namespace, "").rstrip("/"),
        "budgets": budget_path(namespace),
        "leases": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        **{kind: core_path(namespace, kind) for kind in ("pods", "services", "secrets")},
    }
    tree = {kind: _named(await _listed(cell, path)) for kind, path in collections.items()}
    tree["workers"] = {name: _worker(cell, name) for name in cell.hollow()}
    leaves = dict(_leaves(tree, ""))
    return {path: leaf for path, leaf in leaves.items() if not BY_HAND_PATTERN.search(path)}


async def _listed(cell: Cell, path: str) -> list[Json]:
    try:
        return list((await cell.kube.get(path))["items"])
    except Missing:
        return []


def _named(items: list[Json]) -> dict[str, Json]:
    for item in items:
        item["metadata"].pop("managedFields", None)
    return {item["metadata"]["name"]: item for item in items}


def _worker(cell: Cell, name: str) -> dict[str, Any]:
    worker, pod = cell.worker(name), cell.hollow()[name]
    written = worker.written()
    engine = worker.engine
    return {
        "journal": written.model_dump() if written else None,
        "engine": {
            "is up": worker.is_up,
            "holds": cell.materials.versions.get(engine.weights.exact, "unknown weights"),
            "paused": engine.paused,
            "gate is open": engine.gate.is_open,
        },
        "ready": is_ready(pod),
        "files": worker.files(),
    }


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list) and tree:
        for place, value in enumerate(_ordered(tree)):
            yield from _leaves(value, f"{path}.{place}")
    else:
        yield path, json.dumps(tree)


def _ordered(values: list[Any]) -> list[Any]:
    """Bring conditions into an order: the API server keeps that of their writing."""
    if all(isinstance(value, dict) and "type" in value for value in values):
        return sorted(values, key=lambda value: str(value["type"]))
    return values


async def has_stopped_safely(cell: Cell) -> bool:
    """Tell whether every fleet either is as declared or says why not, with no worker left halfway.

    What an engine answers, and that nobody in doubt is ready, is looked at all the time.
    """
    listed = await _listed(cell, fleet_path(cell.namespace, "").rstrip("/"))
    return all(map(_is_told, listed)) and all(map(_is_at_an_end, _kept(cell)))


def _kept(cell: Cell) -> list[Kept]:
    return [cell.worker(name) for name in cell.hollow()]


def _is_at_an_end(worker: Kept) -> bool:
    """Tell whether it serves, or is in doubt for good: another failure on the way is tried anew."""
    written = worker.written()
    if written is None:
        return False
    is_failed = (written.failure or {}).get("code") in {Code.RELOAD_FAILED, Code.PROOF_FAILED}
    return written.state["stage"] == "Open" or (written.state["stage"] == "Doubt" and is_failed)


def _is_told(fleet: Json) -> bool:
    now = fleet["metadata"]["generation"]
    conditions = (fleet.get("status") or {}).get("conditions") or ()
    if any(c["observedGeneration"] != now for c in conditions):
        return False
    told = {c["type"] for c in conditions if c["status"] == "True"}
    is_over = "Stalled" in told or {"Ready", "WeightsSynced"} <= told
    return is_over and "Reconciling" not in told


def differences(
    wanted: dict[str, str], found: dict[str, str], masked: set[str], free: str
) -> list[str]:
    """Tell in what ``found`` differs, path by path, but for those that match ``free``."""
    is_free = re.compile(free).search
    paths = [path for path in sorted((wanted.keys() | found.keys()) - masked) if not is_free(path)]
    return [
        f"{path}: {found.get(path, 'absent')}, wanted {wanted.get(path, 'absent')}"
        for path in paths
        if wanted.get(path) != found.get(path)
    ]


def unstable(first: dict[str, str], second: dict[str, str]) -> set[str]:
    """Return the paths in which two runs without faults differ."""
    return {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)}
