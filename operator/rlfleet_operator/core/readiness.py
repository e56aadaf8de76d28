"""Whether a worker may take traffic: the readiness gate and the version label of each pod. Pure."""

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import MarkPod
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.world import VERSION_LABEL, Worker, World
from rlfleet_operator.core.rollout import version_order
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.strategy import lora


def marks(world: World, rollout: Rollout | None) -> list[MarkPod]:
    """Return the pods whose readiness gate or version label must change."""
    stale = version_order.stale(world) if _is_strict(world) else {}
    marks = (_mark(w, rollout, stale.get(w.name) or _lacks(w, world)) for w in world.workers)
    return [mark for mark in marks if mark is not None]


def _mark(worker: Worker, rollout: Rollout | None, stale: str | None) -> MarkPod | None:
    """Return the change of the pod; None if gate and label are right, or not known."""
    pod = worker.pod
    if pod is None or worker.report is None or not worker.is_live:
        return None
    if worker.is_changing and worker.stage is not Stage.DOUBT:
        # Its clients wait at the gate, so the pod stays as ready as it was.
        return None
    ready = worker.is_open and stale is None and _is_allowed(worker.proved, rollout)
    version = worker.proved if worker.is_open else None
    relabels = pod.version_label != label_of(version)
    regates = pod.weights_ready != ready
    if not relabels and not regates:
        return None
    message = stale or _mark_message(worker, ready=ready)
    return MarkPod(pod.name, pod.uid, ready, version, message, relabels, regates)


def _lacks(worker: Worker, world: World) -> str | None:
    """Return why adapters keep a worker from taking traffic.

    A worker that takes traffic already continues while it loads another adapter.
    """
    if worker.pod is None or worker.pod.weights_ready:
        return None
    if not worker.is_open:
        return None
    if lora.awaits_reports(worker, world):
        return "waiting for the other workers' lists of adapters"
    lacking = lora.lacking(worker, world)
    return None if lacking is None else f"adapter {lacking.name} not loaded yet"


def _is_strict(world: World) -> bool:
    bounds = world.fleet.spec.staleness
    return bounds is not None and bounds.on_violation == "Unready"


def _is_allowed(version: str | None, rollout: Rollout | None) -> bool:
    """Return whether a proved version may take traffic.

    Until a rollout has completed, workers of every earlier version continue to serve: a
    superseded rollout may have left several.
    """
    if rollout is None or not rollout.is_completed:
        return version is not None
    return version == rollout.to


def _mark_message(worker: Worker, *, ready: bool) -> str:
    if ready:
        return f"weights verified; version in label {VERSION_LABEL}"
    if worker.report and worker.report.failure:
        return worker.report.failure.message
    if worker.is_open:
        return f"engine serves {worker.proved}, not the fleet's version"
    return "fleet's version not verified yet"
