"""Which cluster tests, demo and benchmarks use: one of our own, or yours.

`CLUSTER=existing` means the cluster of the current kubeconfig, with images at
IMAGE_PREFIX that you have pushed. Anything else means the node of dev.node.
"""

from pathlib import Path

from dev import environment, steps
from dev.kubernetes import binaries
from dev.node import cluster, layout
from dev.steps import Step, StepFailed

OWN_PREFIX = "rlfleet.local"


def is_existing() -> bool:
    """Return whether the user brought a cluster (CLUSTER=existing)."""
    return environment.variable("CLUSTER") == "existing"


def image_prefix() -> str:
    """Return where image names start."""
    prefix = environment.variable("IMAGE_PREFIX")
    if is_existing() and not prefix:
        raise StepFailed(
            "CLUSTER=existing needs IMAGE_PREFIX, the registry and folder the cluster pulls from"
        )
    return prefix or OWN_PREFIX


def kubeconfig() -> Path:
    """Return the kubeconfig of the cluster to use; it need not be up."""
    if not is_existing():
        return layout.kubeconfig()
    named = environment.variable("KUBECONFIG")
    return Path(named) if named else Path.home() / ".kube" / "config"


def ensure(*lanes: list[Step]) -> Path:
    """Make sure of a cluster, kubectl and helm, with other steps at the same time."""
    clients = binaries.build_steps(binaries.CLIENTS)
    if not is_existing():
        return cluster.up(clients, *lanes)
    if not kubeconfig().exists():
        raise StepFailed(f"CLUSTER=existing, but there is no {kubeconfig()}; set KUBECONFIG")
    steps.run(clients, *lanes)
    return kubeconfig()
