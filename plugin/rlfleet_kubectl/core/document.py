"""What `status -o json` prints: the fields of the tree under stable names."""

from dataclasses import asdict

from rlfleet_kubectl.core import progress
from rlfleet_kubectl.core.verdict import judged
from rlfleet_kubectl.core.view import ObservedFleet, RawObject


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
