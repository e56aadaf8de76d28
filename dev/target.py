"""Which cluster tests, demo and benchmarks use: one of our own, or yours.

`CLUSTER=existing` means the cluster of the current kubeconfig, with images at IMAGE_PREFIX that you
have pushed, or without it loaded into kind or minikube. Anything else means the node of dev.node.
"""

from pathlib import Path

from dev import environment, steps
from dev.kubernetes import binaries, clients
from dev.node import cluster, layout
from dev.steps import Step, StepFailed

OWN_PREFIX = "rlfleet.local"


def is_existing() -> bool:
    """Return whether the user brought a cluster (CLUSTER=existing)."""
    return environment.variable("CLUSTER") == "existing"


def image_prefix() -> str:
    """Return where image names start."""
    return environment.variable("IMAGE_PREFIX") or OWN_PREFIX


def has_registry() -> bool:
    """Return whether the user's cluster pulls from a registry that the user has named."""
    return bool(environment.variable("IMAGE_PREFIX"))


def kubeconfig() -> Path:
    """Return the kubeconfig of the cluster to use; it need not be up."""
    if not is_existing():
        return layout.kubeconfig()
    named = environment.variable("KUBECONFIG")
    return Path(named) if named else Path.home() / ".kube" / "config"


def client_steps(*only: str) -> list[Step]:
    """Return what is left to build of kubectl and helm, or only of one."""
    return clients.build_steps(only or binaries.CLIENTS, are_users=is_existing())


def search_path() -> str:
    """Return the PATH on which kubectl and helm for this cluster are found."""
    return clients.search_path(are_users=is_existing())


def ensure(*lanes: list[Step]) -> Path:
    """Make sure of a cluster, kubectl and helm, with other steps at the same time."""
    if not is_existing():
        return cluster.up(client_steps(), *lanes)
    if not kubeconfig().exists():
        raise StepFailed(f"CLUSTER=existing, but there is no {kubeconfig()}; set KUBECONFIG")
    steps.run(client_steps(), *lanes)
    return kubeconfig()
