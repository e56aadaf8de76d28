"""Which cluster tests, demo and benchmarks use: one of our own, or yours.

`CLUSTER=existing` means the cluster of the current kubeconfig, with images at
IMAGE_PREFIX that you have pushed. Anything else means the node of dev.node.
"""

import os
from pathlib import Path

from dev.node import cluster, layout
from dev.steps import Step, StepFailed

OWN_PREFIX = "rlfleet.local"


def is_existing() -> bool:
    """Tell whether the user brought a cluster."""
    return os.environ.get("CLUSTER") == "existing"


def image_prefix() -> str:
    """Return where image names start."""
    prefix = os.environ.get("IMAGE_PREFIX", "")
    if is_existing() and not prefix:
        message = "CLUSTER=existing needs IMAGE_PREFIX, the registry and folder that the cluster pulls from"
        raise StepFailed(message)
    return prefix or OWN_PREFIX


def kubeconfig() -> Path:
    """Return the kubeconfig of the cluster to use; it need not be up."""
    if not is_existing():
        return layout.kubeconfig()
    return Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")


def ensure(*beside: list[Step]) -> Path:
    """Make sure that there is a cluster; do other steps while ours starts."""
    if not is_existing():
        return cluster.up(*beside)
    if not kubeconfig().exists():
        message = f"CLUSTER=existing, but there is no {kubeconfig()}; set KUBECONFIG"
        raise StepFailed(message)
    return kubeconfig()
