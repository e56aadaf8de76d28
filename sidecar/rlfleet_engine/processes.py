"""Processes of the engine's container, as /proc shows them.

The only reader of /proc in this package. It imports only the standard library, because the preStop
hook's start takes from the pod's grace period.
"""

from pathlib import Path

ENGINE = 1
"""The engine's process in its container (so the pod must not share its process namespace)."""
_STATE, _PARENT, _START_TIME = 0, 1, 19
"""Fields 3, 4 and 22 of /proc/PID/stat, counted after the closing bracket of the command."""
_ENDED = frozenset("ZXx")


def kernel_boot() -> str:
    """Return the identity of the kernel's boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def started(pid: int) -> int:
    """Return the start time of a process in the kernel's ticks; 0 if it does not run."""
    fields = _fields(pid)
    return 0 if not fields or fields[_STATE] in _ENDED else int(fields[_START_TIME])


def children(parent: int) -> list[int]:
    """Return the processes that a process has started and not reaped."""
    pids = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if (fields := _fields(pid)) and int(fields[_PARENT]) == parent]


def command(pid: int) -> bytes:
    """Return a process's words, each ended by a zero byte; raises OSError if it has ended."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _fields(pid: int) -> list[str]:
    """Return the fields after the name, which may contain any character; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
