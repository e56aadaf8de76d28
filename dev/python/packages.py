"""Debian packages that the cluster and the images need, installed when missing.

Nothing but the distribution's own packages is downloaded. On another distribution
the same programs may be installed by hand, so this looks for programs, not packages.
"""

import os
import shutil
from pathlib import Path

from dev import cache, environment
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
BROWSER = {"chromium": "chromium", "chromedriver": "chromium-driver"}
SHELLS = {"zsh": "zsh", "fish": "fish"}
FILE_SYSTEMS = {"mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs"}
TOOLS = {"redis-server": "redis-server", "git": "git"}
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}


def steps(*wanted: dict[str, str]) -> list[Step]:
    """Return the one step that installs what is missing, or none."""
    packages = {program: package for table in wanted for program, package in table.items()}
    missing = sorted({packages[program] for program in packages if not _is_here(program)})
    if not missing:
        return []
    return [Step(f"installing {' '.join(missing)}", lambda: _install(missing))]


def _is_here(program: str) -> bool:
    path = environment.search_path()
    return Path(program).exists() or shutil.which(program, path=path) is not None


def _install(missing: list[str]) -> None:
    if os.geteuid() or not shutil.which("apt-get"):
        names = " ".join(missing)
        raise StepFailed(f"these Debian packages are missing: {names}; install them as root")
    # RUNLEVEL=1: Debian would start etcd and containerd as services at once;
    # the development cluster has its own and does not need them.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    with cache.lock("apt"):
        cache.call(["apt-get", "update"], "apt-update", env=quiet)
        cache.call(install, "apt-install", env=quiet)
