"""The environment variables that the development commands read, and nowhere else.

RLFLEET_CACHE    where slow things are kept (default: rlfleet in the user's cache)
CLUSTER          "existing": use the cluster of the current kubeconfig
IMAGE_PREFIX     where image names start, for CLUSTER=existing; without it they are loaded
WORKER_BASE      for CLUSTER=existing: the image with vLLM for CPU under the worker's
STORAGE_CLASS    for CLUSTER=existing: the class of the demo's volume (default: the cluster's)
KUBERNETES       the release of Kubernetes that is built (default: dev/cluster/go.mod's)
VLLM             the release of vLLM in the worker's image (default: the newest locked one)
KUBECONFIG       as everywhere
PLUGIN_URI       where a release of the kubectl plugin is published, for krew's manifest
RELEASE_KEY      the private key that signs a release (PEM, ECDSA P-256); without it, none
SOURCE_DATE_EPOCH  the time of every file of a release (default: the commit's)
PIP_*            as pip reads them, handed on to image builds
"""

import os
from pathlib import Path


def variable(name: str) -> str:
    """Return a variable, or nothing when it is not set."""
    return everything().get(name, "")


def everything() -> dict[str, str]:
    """Return all variables, to hand on to a program that we start."""
    return dict(os.environ)  # noqa: TID251 - this is the one reader


def cache() -> Path:
    """Return the folder that RLFLEET_CACHE names, or its default."""
    if named := variable("RLFLEET_CACHE"):
        return Path(named).absolute()
    home = variable("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "rlfleet"


def search_path() -> str:
    """Return PATH with the folders of system programs, which a user's may lack."""
    return f"{variable('PATH')}:/usr/sbin:/sbin"
