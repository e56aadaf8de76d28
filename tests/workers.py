"""Workers in given states, and the worlds that they make, as few words as possible."""

from typing import Any

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Worker, World
from tests import fleets

MOMENT = 1_700_000_000.0


def pod(ordinal: int = 0, **fields: Any) -> Pod:
    """Return the pod of a worker that takes traffic with step-1."""
    known: dict[str, Any] = {
        "name": f"qwen-{ordinal}",
        "uid": f"p-{ordinal}",
        "ordinal": ordinal,
        "owner_uid": "f-1",
        "template_hash": pod_manifest.template_hash(fleets.fleet()),
        "address": "10.0.0.1",
        "phase": "Running",
        "ready": True,
        "weights_ready": True,
        "version_label": "step-1",
        "terminating": False,
        "ends_by": None,
        "engine_restarts": 0,
        "trouble": None,
    }
    return Pod(**(known | fields))


def report(stage: Stage = Stage.OPEN, **fields: Any) -> WorkerReport:
    """Return a report; an open worker has proved step-1 if nothing else is said."""
    proved = {"proved": "step-1"} if stage is Stage.OPEN else {}
    return WorkerReport.model_validate(
        {"session": "s", "boot": "b", "stage": stage} | proved | fields
    )


def worker(ordinal: int = 0, stage: Stage = Stage.OPEN, **fields: Any) -> Worker:
    """Return a worker whose sidecar answers; ``fields`` are its report's."""
    ready = stage is Stage.OPEN
    return Worker(
        name=f"qwen-{ordinal}",
        ordinal=ordinal,
        pod=pod(ordinal, ready=ready, weights_ready=ready),
        report=report(stage, **fields),
        reachable=True,
    )


def problem(code: Code, version: str = "step-2", operation: str = "rollout-1") -> Problem:
    """Return a problem of a version under an operation."""
    return Problem.of(code, "why", version=version, operation=operation)


def world(*workers: Worker, status: dict[str, Any] | None = None, **spec: Any) -> World:
    """Return the world of exactly these workers; step-1 is asked for if nothing else is said."""
    wanted = {"replicas": len(workers), "weightVersion": "step-1"} | spec
    made = fleets.fleet(wanted, status=status)
    return World(
        fleet=made,
        workers=workers,
        template_hash=pod_manifest.template_hash(made),
        moment=MOMENT,
    )


def recorded(to: str, phase: str, **fields: Any) -> dict[str, Any]:
    """Return a status that has a rollout from step-1 on record."""
    rollout = {"id": 1, "from": "step-1", "to": to, "phase": phase}
    return {
        "target": to,
        "rollout": rollout | {"startedAt": "2023-11-14T22:13:20Z"} | fields,
    }
