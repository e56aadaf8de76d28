"""Where the demo's checkpoints lie on a user's cluster: decided from its nodes and storage classes.

Pure. Pods of one node share a ReadWriteOnce volume, so that one node needs no ReadWriteMany; with
no storage class at all, one node has a folder of its own for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dev.steps import StepFailed

Resource = dict[str, Any]
DEFAULT = "storageclass.kubernetes.io/is-default-class"
_CLOSED = {"NoSchedule", "NoExecute"}


@dataclass(frozen=True)
class Storage:
    """What the claim says, and why."""

    mode: str
    class_name: str
    """Empty: the cluster's default, or none where a folder serves it."""
    why: str
    is_folder: bool = False


def choose(nodes: Sequence[Resource], classes: Sequence[Resource], named: str) -> Storage:
    """Return where the checkpoints lie. `named`: the class that STORAGE_CLASS names, or empty."""
    known = [one["metadata"]["name"] for one in classes]
    listed = ", ".join(known) or "none"
    if named and named not in known:
        raise StepFailed(f"STORAGE_CLASS={named} is not in the cluster (it has: {listed})")
    has_class = bool(named or any(_is_default(one) for one in classes))
    count = sum(_takes_pods(node) for node in nodes)
    if count <= 1:
        return _of_one_node(named, has_class=has_class)
    if not has_class:
        raise StepFailed(
            f"{count} nodes and no default storage class (the cluster has: {listed}); "
            "set STORAGE_CLASS to one with ReadWriteMany"
        )
    of_class = f"storage class {named}" if named else "the default storage class"
    return Storage("ReadWriteMany", named, f"{count} nodes: ReadWriteMany of {of_class}")


def _of_one_node(named: str, *, has_class: bool) -> Storage:
    if has_class:
        return Storage("ReadWriteOnce", named, "one node: its pods share ReadWriteOnce")
    why = "one node without a default storage class: a folder of the node"
    return Storage("ReadWriteOnce", "", why, is_folder=True)


def _is_default(storage_class: Resource) -> bool:
    notes = storage_class["metadata"].get("annotations") or {}
    return notes.get(DEFAULT) == "true"


def _takes_pods(node: Resource) -> bool:
    spec = node["spec"]
    taints = {taint["effect"] for taint in spec.get("taints") or ()}
    return not spec.get("unschedulable") and not taints & _CLOSED
