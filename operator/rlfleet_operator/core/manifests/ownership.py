"""Whether an object whose name a fleet needs belongs to that fleet. Pure."""

from dataclasses import dataclass

from rlfleet_operator.core.model.fleet import names_fleet
from rlfleet_operator.core.model.world import FLEET_LABEL, Identity, Raw


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a fleet cannot use a name for its object."""

    message: str
    may_pass: bool
    """Whether Kubernetes deletes the object that has the name."""


def complaint(found: Raw, fleet: Identity, kind: str) -> Complaint | None:
    """Return why an object is not the fleet's; None if it is, or is being deleted."""
    metadata = found["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if "deletionTimestamp" in metadata or any(owner["uid"] == fleet.uid for owner in owners):
        return None
    what = f"{kind} {metadata['name']}"
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is not None and names_fleet(controller, fleet.name):
        return Complaint(
            f"{what} belongs to an earlier fleet of this name, and the garbage collector deletes"
            " it; if it remains, check that kube-controller-manager runs",
            may_pass=True,
        )
    action = "delete it, or give the fleet another name"
    if controller is None and (metadata.get("labels") or {}).get(FLEET_LABEL) == fleet.name:
        action = _way_out(kind, metadata["name"], fleet)
    return Complaint(f"{what} exists and does not belong to this fleet: {action}", may_pass=False)


def _way_out(kind: str, name: str, fleet: Identity) -> str:
    """Return how to delete what has the fleet's label and no owner."""
    if kind == "Pod":
        # Status names a pod after all other objects are the fleet's: other pods may serve.
        return f"its owner was removed; delete it: kubectl delete pod {name} -n {fleet.namespace}"
    return (
        "an earlier fleet or a backup left it. Delete all such objects: kubectl delete"
        f" svc,pdb,secret,pod -l {FLEET_LABEL}={fleet.name} -n {fleet.namespace}"
    )
