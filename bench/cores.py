"""Which cores the processes of engines on this machine may run on.

vLLM binds an engine's worker to a core on CPUs and leaves its other processes free. One of
those that waits for the worker spins; where it lands on the worker's core, which is chance and
lasts for minutes, a step takes up to eight times as long.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_NAMES = {"worker": "VLLM::Worker", "engine core": "VLLM::EngineCore"}
_WORKER = "VLLM::Worker"
_OTHERS = ("VLLM::EngineCore", "vllm.entrypoints.openai.api_server")


def part() -> set[int]:
    """Keep the engines' other processes off their workers' cores; return the cores left to them.

    Empty, and nothing is changed, where no worker runs here or no core is left.
    """
    taken = {core for pid in _pids(_WORKER) for core in os.sched_getaffinity(pid)}
    left = os.sched_getaffinity(0) - taken
    if not taken or not left:
        return set()
    for name in _OTHERS:
        for pid in _pids(name):
            _bind(pid, left)
    return left


def engines() -> dict[str, list[str]]:
    """Return on which cores the engines' processes on this machine may run, by what they are."""
    found = {what: [_cores(pid) for pid in _pids(name)] for what, name in _NAMES.items()}
    return {what: sorted(cores) for what, cores in found.items()}


def spread(count: int) -> None:
    """Bind the workers of ``count`` engines to a core of their own, as far as there are as many.

    Two workers on one core wait for each other: one that has just answered spins for a second.
    Raises RuntimeError if other engines run here, which would share those cores.
    """
    own, found = sorted(os.sched_getaffinity(0)), sorted(_pids(_WORKER))
    if len(found) != count:
        raise RuntimeError(f"{len(found)} engines run here, expected {count}; delete other fleets")
    for place, pid in enumerate(found):
        _bind(pid, {own[place % len(own)]})


def _bind(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def _cores(pid: int) -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(pid))))


def _pids(name: str) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and name.encode() in _command(folder):
            yield int(folder.name)


def _command(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""
