"""Whose an object is that has a name which a fleet needs. Pure."""

from dataclasses import dataclass

from rlfleet_operator.core.model.world import FLEET_LABEL, Identity, Raw
from rlfleet_operator.crd.fleet_spec import GROUP, KIND


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a fleet cannot have an object under a name."""

    message: str
    may_pass: bool
    """Whether the object goes without anybody's doing."""


def complaint(found: Raw, fleet: Identity, kind: str) -> Complaint | None:
    """Return why an object is not the fleet's; None if it is, or makes way already."""
    metadata = found["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if "deletionTimestamp" in metadata or any(owner["uid"] == fleet.uid for owner in owners):
        return None
    what = f"{kind} {metadata['name']}"
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is not None and _is_namesake(controller, fleet):
        return Complaint(
            f"{what} belongs to an earlier fleet of this name: the garbage collector deletes it;"
            " see whether kube-controller-manager runs if it does not",
            may_pass=True,
        )
    way_out = "delete it, or give the fleet another name"
    if controller is None and (metadata.get("labels") or {}).get(FLEET_LABEL) == fleet.name:
        label = f"{FLEET_LABEL}={fleet.name}"
        way_out = (
            "it was left of an earlier one or restored. Delete all of these, and the fleet makes"
            f" its own: kubectl delete svc,pdb,secret,pod -l {label} -n {fleet.namespace}"
        )
    return Complaint(f"{what} exists and does not belong to this fleet: {way_out}", may_pass=False)


def _is_namesake(owner: Raw, fleet: Identity) -> bool:
    group = str(owner.get("apiVersion", "")).partition("/")[0]
    return (group, owner.get("kind"), owner.get("name")) == (GROUP, KIND, fleet.name)
