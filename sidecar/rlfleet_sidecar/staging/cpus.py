"""How many threads read and copy at once: as many as the container has CPUs for."""

import os
from math import ceil
from pathlib import Path

_MOST = 8
_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def threads() -> int:
    """Return the number of threads, by the CPUs that this process may use."""
    cpus = float(len(os.sched_getaffinity(0)))
    return max(1, min(_MOST, ceil(min(cpus, quota(_CGROUPS, _OWN)))))


def quota(cgroups: Path, own: Path) -> float:
    """Return the CPUs that the process's cgroups allow; infinity without a limit.

    Args:
        cgroups: The mounted file systems of cgroups. A container sees its own as their root.
        own: The file with the process's paths in them.

    """
    limits = [float("inf")]
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            limits += map(_quota_2, _folders(cgroups, path))
        elif "cpu" in controllers.split(","):
            for mount in (controllers, "cpu"):
                limits += map(_quota_1, _folders(cgroups / mount, path))
    return min(limits)


def _folders(root: Path, path: str) -> list[Path]:
    """Return a cgroup's folder and those above it, whose limits hold too."""
    own = root / path.lstrip("/")
    return [own, *(above for above in own.parents if above.is_relative_to(root))]


def _quota_2(folder: Path) -> float:
    allowed, _, period = _text(folder / "cpu.max").partition(" ")
    return int(allowed) / int(period) if allowed.isdigit() and period else float("inf")


def _quota_1(folder: Path) -> float:
    allowed = _text(folder / "cpu.cfs_quota_us")
    period = _text(folder / "cpu.cfs_period_us")
    return int(allowed) / int(period) if allowed.isdigit() and period else float("inf")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""
