"""How much memory a preload may take: what the node and the container have left.

The kernel counts clean page cache as available, so this module does the same with the cache of
the container's control group. ``objection`` decides, ``read`` looks.
"""

from pathlib import Path
from typing import NamedTuple

_KIB = 1024
_RESERVE_SHARE = 0.05
"""Of the limit: what a preload must leave free."""
_UNLIMITED = 1 << 60
"""Version 1 of control groups writes a number above this for no limit."""
_PROC = Path("/proc")
_GROUP = Path("/sys/fs/cgroup")


class FreeMemory(NamedTuple):
    """The memory of a node or of a container, in bytes."""

    available: int
    """Free, or in page cache that the kernel may drop."""
    limit: int
    """All that there is, or that the container may use."""


def objection(nbytes: int, further: int, memory: FreeMemory) -> str | None:
    """Return why a preload of so many bytes does not fit; None if it does.

    ``further`` is what the reload itself will need while the preload is still held.
    """
    reserve = int(memory.limit * _RESERVE_SHARE)
    needed = nbytes + further + reserve
    if needed <= memory.available:
        return None
    return (
        f"too little memory ({needed} bytes needed with a reserve of {reserve}, {memory.available}"
        f" of {memory.limit} available)"
    )


def tightest(*found: FreeMemory | None) -> FreeMemory | None:
    """Return the one with the least available; None counts as unknown, and none known as None."""
    return min((one for one in found if one is not None), default=None)


def of_node(meminfo: str) -> FreeMemory | None:
    """Parse /proc/meminfo."""
    fields = {
        name: rest.split() for name, _, rest in (x.partition(":") for x in meminfo.split("\n"))
    }
    try:
        available, total = (int(fields[name][0]) * _KIB for name in ("MemAvailable", "MemTotal"))
    except (KeyError, IndexError, ValueError):
        return None
    return FreeMemory(available, total)


def of_group(limit: str, usage: str, statistics: str) -> FreeMemory | None:
    """Parse a control group's limit, usage and memory.stat; None without a limit."""
    fields = dict(line.split(" ", 1) for line in statistics.splitlines() if " " in line)
    try:
        most, used = int(limit), int(usage)
        # Version 1 has the sums of a group with all below it under other names.
        cache = sum(
            int(fields.get(f"total_{name}") or fields[name])
            for name in ("active_file", "inactive_file")
        )
    except (KeyError, ValueError):
        return None
    return None if most >= _UNLIMITED else FreeMemory(max(0, most - used + cache), most)


def read(proc: Path = _PROC, group: Path = _GROUP) -> FreeMemory | None:
    """Return the tightest of node and container; None if neither can be read."""
    return tightest(
        of_node(_text(proc / "meminfo")),
        of_group(
            _text(group / "memory.max"),
            _text(group / "memory.current"),
            _text(group / "memory.stat"),
        ),
        of_group(
            _text(group / "memory" / "memory.limit_in_bytes"),
            _text(group / "memory" / "memory.usage_in_bytes"),
            _text(group / "memory" / "memory.stat"),
        ),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
