"""Debian packages that the cluster and the images need, installed when missing.

Nothing is downloaded beside the distribution's own packages; on another
distribution the same programs may be installed by hand, so what is looked for
is the program and not the package.
"""

import os
import shutil
from pathlib import Path

from dev import cache
from dev.steps import Step, StepFailed

# program -> package. CNI's plugins are not on PATH.
NODE = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "etcd": "etcd-server",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "openssl": "openssl",
}
CONTROL_PLANE = {"etcd": "etcd-server", "openssl": "openssl"}
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def steps(*wanted: dict[str, str]) -> list[Step]:
    """Return the one step that installs what is missing, or none."""
    missing = sorted({package for table in wanted for program, package in table.items() if not _is_here(program)})
    if not missing:
        return []
    return [Step(f"installing {' '.join(missing)}", lambda: _install(missing))]


def _is_here(program: str) -> bool:
    sbin = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return Path(program).exists() or shutil.which(program, path=sbin) is not None


def _install(missing: list[str]) -> None:
    if os.geteuid() or not shutil.which("apt-get"):
        message = f"these Debian packages are missing: {' '.join(missing)}; install them as root"
        raise StepFailed(message)
    # RUNLEVEL=1: Debian would start etcd and containerd as services at once;
    # ours run beside them with their own state, but nobody asked for those.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with cache.lock("apt"):
        cache.call(["apt-get", "update"], "apt-update", env=quiet)
        cache.call(["apt-get", "install", "--yes", "--no-install-recommends", *missing], "apt-install", env=quiet)
