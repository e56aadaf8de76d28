"""Claims that do not exist, are not bound, or that only one node or pod may mount."""

from collections.abc import Iterator
from typing import Any

from rlfleet_kubectl.core.doctor import commands
from rlfleet_kubectl.core.doctor.finding import Finding, error, warning
from rlfleet_kubectl.core.doctor.scene import FleetScene, kubectl_in
from rlfleet_view.fleet import RawObject

_FIRST_CONSUMER = "WaitForFirstConsumer"


def claims_of(scene: FleetScene) -> dict[str, str]:
    """Return the claims that the spec or a pod names, with the field that names each."""
    found: dict[str, str] = {}
    for field in ("model.volume", "weights.volume"):
        _add(found, scene.fleet.spec_at(field), f"spec.{field}")
    for one in scene.fleet.spec_at("template.spec.volumes") or ():
        _add(found, one, "spec.template.spec.volumes")
    for pod in scene.pods():
        for one in (pod.get("spec") or {}).get("volumes") or ():
            _add(found, one, f"pod {pod['metadata']['name']}")
    return found


def _add(found: dict[str, str], volume: Any, field: str) -> None:
    claim = (volume or {}).get("persistentVolumeClaim") if isinstance(volume, dict) else None
    if claim and claim.get("claimName"):
        found.setdefault(str(claim["claimName"]), field)


def of_fleet(scene: FleetScene) -> Iterator[Finding]:
    """Yield what is wrong with the claims of a fleet."""
    if not scene.space.knows("persistentvolumeclaims"):
        return
    known = {one["metadata"]["name"]: one for one in scene.space.of("persistentvolumeclaims")}
    for name, field in claims_of(scene).items():
        about = f"claim {scene.fleet.namespace}/{name}"
        if name not in known:
            said = f"got no PersistentVolumeClaim {name}, expected the one that {field} names"
            mend = f"{_creating(name, scene)}, or change {field}"
            yield error("ClaimMissing", about, said, mend)
            continue
        yield from _unbound(known[name], about, scene)
        yield from _too_narrow(known[name], about, field, scene)


def _creating(name: str, scene: FleetScene) -> str:
    """Return the command that creates a claim of the default class, which all workers can mount."""
    mode = "ReadWriteMany" if scene.fleet.replicas > 1 else "ReadWriteOnce"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "SIZE"}}},
    }
    return commands.applying(claim, scene.fleet.namespace)


def _unbound(claim: RawObject, about: str, scene: FleetScene) -> Iterator[Finding]:
    phase = (claim.get("status") or {}).get("phase")
    name = claim["metadata"]["name"]
    command = kubectl_in(scene.fleet.namespace)
    if phase == "Lost":
        said = "got phase Lost, expected Bound: its volume was deleted"
        yield error("ClaimLost", about, said, f"{command} get pv; restore it, or make a new claim")
    if phase != "Pending":
        return
    newest = next(iter(scene.space.events("PersistentVolumeClaim", name)), {})
    if newest.get("reason") == _FIRST_CONSUMER and not any(True for _ in scene.pods()):
        return
    storage_class = (claim.get("spec") or {}).get("storageClassName") or "the default class"
    why = f": {newest['reason']}: {newest.get('message', '')}" if newest else ""
    said = f"got phase Pending, expected Bound (storage class {storage_class}){why}"
    yield error("ClaimPending", about, said, f"{command} describe pvc {name}")


def _too_narrow(claim: RawObject, about: str, field: str, scene: FleetScene) -> Iterator[Finding]:
    modes, replicas = (claim.get("spec") or {}).get("accessModes") or [], scene.fleet.replicas
    if replicas <= 1 or not {"ReadWriteMany", "ReadOnlyMany"}.isdisjoint(modes):
        return
    got = f"got accessModes {', '.join(modes)} for {replicas} workers"
    mend = f"use a claim with ReadOnlyMany or ReadWriteMany in {field}, or 1 replica"
    if modes == ["ReadWriteOncePod"]:
        yield error("ClaimForOnePod", about, f"{got}: one pod alone may mount it", mend)
        return
    nodes = {(pod.get("spec") or {}).get("nodeName") for pod in scene.pods()} - {None}
    make = error if len(nodes) > 1 else warning
    said = f"{got}, expected ReadOnlyMany or ReadWriteMany: pods on one node alone mount it"
    yield make("ClaimForOneNode", about, said, mend)
