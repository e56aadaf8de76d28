"""Whether a worker may take traffic: the readiness gate and the version label of each pod. Pure."""

from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import MarkPod
from rlfleet_operator.core.model.version_label import label_of
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout import version_order
from rlfleet_operator.core.rollout.rollout import Rollout
from rlfleet_operator.core.strategy import lora


def marks(world: World, rollout: Rollout | None) -> list[MarkPod]:
    """Return what has to be written on the pods so that gate and label are right."""
    stale = version_order.stale(world) if _is_strict(world) else {}
    marks = (_mark(w, rollout, stale.get(w.name) or _lacks(w, world)) for w in world.workers)
    return [mark for mark in marks if mark is not None]


def _mark(worker: Worker, rollout: Rollout | None, stale: str | None) -> MarkPod | None:
    """Return what has to be written on the pod; None while it is right or nobody knows."""
    pod = worker.pod
    if pod is None or worker.report is None or not worker.is_live:
        return None
    if worker.is_changing and worker.stage is not Stage.DOUBT:
        # Its clients wait at the gate: it stays as routable as it was.
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
    """Tell what a worker that takes no traffic yet lacks of adapters.

    One that takes traffic goes on when another adapter is asked for.
    """
    if worker.pod is None or worker.pod.weights_ready:
        return None
    if not worker.is_open:
        return None
    if lora.is_unheard(worker, world):
        return "waits to hear which adapters the others serve"
    lacking = lora.lacking(worker, world)
    return None if lacking is None else f"has not loaded adapter {lacking.name} yet"


def _is_strict(world: World) -> bool:
    bounds = world.fleet.spec.staleness
    return bounds is not None and bounds.on_violation == "Unready"


def _is_allowed(version: str | None, rollout: Rollout | None) -> bool:
    """Tell whether a proved version may take traffic.

    Until a rollout has completed, workers of every version it replaces go on serving:
    one that gave way to it in the middle has left more than one.
    """
    if rollout is None or not rollout.is_completed:
        return version is not None
    return version == rollout.to


def _mark_message(worker: Worker, *, ready: bool) -> str:
    if ready:
        return "serves what it has proved: see the label"
    if worker.report and worker.report.failure:
        return worker.report.failure.message
    if worker.is_open:
        return f"serves {worker.proved}, which the fleet does not ask for"
    return "has not proved the fleet's version"
