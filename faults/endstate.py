"""The state of a namespace and its workers as one tree of plain values, and its differences."""

import json
import re
from collections.abc import Iterator
from typing import Any

from faults.cell import Cell
from faults.monitor import is_ready
from faults.workers import Kept
from rlfleet_contract.worker.problems import Code
from rlfleet_operator.core.status.conditions import MIXED
from rlfleet_operator.errors import Missing
from rlfleet_operator.kube.client import Json, fleet_path, object_path

BY_HAND = {
    r"metadata\.(uid|resourceVersion|creationTimestamp|generation|managedFields)": (
        "the API server assigns a new one each time"
    ),
    r"ownerReferences\.\d+\.uid": "the same",
    r"clusterIPs?(\.\d+)?$": "the same",
    r"(Time|At|At_?|_at)$": "a time",
    r"rollout\.notBefore$": "a time, there if a change came within four seconds of another",
    r"([a-z]Ms|_s|[sS]econds)$": "a measured time",
    r"podIPs?(\.|$)": "the node takes the next free address",
    r"state\.boot$": "names a start of an engine",
    r"state\.loads$": "a fault adds loads; that the gate has counted as many is compared",
    r"data\.token$": "drawn by chance",
    r"\.last_change(\.|$)": "a record that a sidecar killed after the last step cannot write",
    r"status\.epoch$": "raised by each operator that takes the fleet over",
    r"proof\.(logprobs|tokens|tolerance)(\.|$)": "the probe is as long as the engine is quick",
    r"verified_by|verifiedBy": "the first worker has no peer to compare with",
}
"""Paths that are never compared, and why; reference runs find the other unstable ones."""
BY_HAND_PATTERN = re.compile("|".join(BY_HAND))


async def seen(cell: Cell) -> dict[str, str]:
    """Return every leaf of everything, by its path."""
    namespace = cell.namespace
    collections = {
        "fleets": fleet_path(namespace, "").rstrip("/"),
        "budgets": object_path(namespace, "poddisruptionbudgets"),
        "leases": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
        **{kind: object_path(namespace, kind) for kind in ("pods", "services", "secrets")},
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
            "loads are on record": written is not None
            and written.state["loads"] == engine.gate.loads,
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
    """Return whether every fleet is as declared or Stalled, and no worker is within a change.

    The monitor checks engines' answers and the readiness of workers in doubt during the run.
    """
    listed = await _listed(cell, fleet_path(cell.namespace, "").rstrip("/"))
    return all(map(_is_final, listed)) and all(map(_is_at_an_end, _kept(cell)))


def _kept(cell: Cell) -> list[Kept]:
    return [cell.worker(name) for name in cell.hollow()]


def _is_at_an_end(worker: Kept) -> bool:
    """Return whether it serves or is in doubt; the operator retries any other failure."""
    written = worker.written()
    if written is None:
        return False
    is_failed = (written.failure or {}).get("code") in {Code.RELOAD_FAILED, Code.PROOF_FAILED}
    return written.state["stage"] == "Open" or (written.state["stage"] == "Doubt" and is_failed)


def _is_final(fleet: Json) -> bool:
    now = fleet["metadata"]["generation"]
    conditions = (fleet.get("status") or {}).get("conditions") or ()
    if any(c["observedGeneration"] != now for c in conditions):
        return False
    # Without a requested version, workers that differ stay as they are.
    true = {c["type"] for c in conditions if c["status"] == "True" or c["reason"] == MIXED}
    is_over = "Stalled" in true or {"Ready", "WeightsSynced"} <= true
    return is_over and "Reconciling" not in true


def differences(
    wanted: dict[str, str], found: dict[str, str], masked: set[str], free: str
) -> list[str]:
    """Return the differences of ``found``, path by path, except paths that match ``free``."""
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
