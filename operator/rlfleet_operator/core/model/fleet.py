"""Parses a fleet from the API server's JSON."""

from rlfleet_operator.core.model.world import Fleet, Identity, Raw
from rlfleet_operator.crd.field_types import epoch_of
from rlfleet_operator.crd.fleet_spec import GROUP, KIND, FleetSpec
from rlfleet_operator.crd.fleet_status import FleetStatus


def named(raw: Raw) -> Identity:
    """Return the identity of a fleet without parsing its spec and status."""
    metadata = raw["metadata"]
    return Identity(metadata["namespace"], metadata["name"], metadata["uid"])


def asked_of(raw: Raw) -> tuple[str | None, ...]:
    """Return what the target comes from, without parsing: it differs where the target does."""
    status = raw.get("status") or {}
    learned = ((status.get(name) or {}).get("version") for name in ("followed", "trainerTarget"))
    return raw["spec"].get("weightVersion"), *learned


def fleet_from(raw: Raw) -> Fleet:
    """Parse an RLInferenceFleet; raises pydantic.ValidationError if spec or status is invalid."""
    metadata = raw["metadata"]
    created = metadata.get("creationTimestamp")
    return Fleet(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        spec=FleetSpec.model_validate(raw["spec"]),
        status=FleetStatus.model_validate(raw.get("status") or {}),
        deleting="deletionTimestamp" in metadata,
        created_at=epoch_of(created) if created else None,
    )


def names_fleet(owner: Raw, name: str) -> bool:
    """Return whether an owner reference names a fleet of this name, present or earlier."""
    group = str(owner.get("apiVersion", "")).partition("/")[0]
    return (group, owner.get("kind"), owner.get("name")) == (GROUP, KIND, name)
