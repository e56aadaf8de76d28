"""What `status -o json` prints: the fields of the tree under stable names."""

from dataclasses import asdict

from rlfleet_view import progress
from rlfleet_view.fleet import ObservedFleet, RawObject
from rlfleet_view.verdict import judged


def document(fleet: ObservedFleet) -> RawObject:
    """Return the state of a fleet."""
    found, rollout = judged(fleet), fleet.rollout
    copied = progress.prepared(rollout) if rollout else None
    return {
        "name": fleet.name,
        "namespace": fleet.namespace,
        "generation": fleet.generation,
        "observed": fleet.is_observed,
        "state": found.state,
        "reason": found.reason,
        "message": found.message,
        "target": fleet.target,
        "serving": fleet.serving,
        "replicas": fleet.replicas,
        "ready": int(fleet.status.get("readyReplicas") or 0),
        "proved": int(fleet.status.get("provedReplicas") or 0),
        "conditions": [asdict(one) for one in fleet.conditions],
        "rollout": None if rollout is None else asdict(rollout),
        "prepared": None if copied is None else copied.done,
        "workers": [asdict(one) for one in fleet.workers],
    }
