"""Where the gate's file lies, what tells one start of the engine from another, and bounds.

The only reader of /proc in this package. The boot identity
must be the same in all API server processes of one start of the engine and differ
after each: it is the kernel's boot and the start time of process 1, which is the
engine itself (the pod must not share its process namespace).
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from rlfleet_contract.settings import Settings

_STATE_AFTER_NAME = 0
_ENDED = frozenset("ZXx")
_START_TIME_AFTER_NAME = 19
"""Field 22 of /proc/PID/stat, counted behind the command's closing bracket."""


def _fields(pid: int) -> list[str]:
    """Return those of /proc/PID/stat behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _boot() -> str:
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    identity = f"{kernel} {_fields(1)[_START_TIME_AFTER_NAME]}"
    return sha256(identity.encode()).hexdigest()[:16]


class EngineSettings(Settings):
    """What this process needs to know."""

    FOREIGN: ClassVar[Mapping[str, str]] = {"api_key": "VLLM_API_KEY"}

    gate_file: Path = Path("/dev/shm/rlfleet-gate")  # noqa: S108 - memory shared by the engine's processes
    """Shared by the API server processes of one engine."""
    boot: str = Field(default_factory=_boot)
    """Changes with every start of the engine; set only by tests."""
    max_body_bytes: int = Field(default=512 * 1024 * 1024, gt=0)
    """Of a request that waits or may have a salt: vLLM, too, has all of it in memory. Nothing is
    reserved for it."""
    api_key: str | None = Field(default=None, repr=False)
    """What vLLM asks of its clients, however it came into the environment."""


def started(pid: int) -> int:
    """Return when a process started, in the kernel's ticks; 0 if there is none or it ended."""
    try:
        fields = _fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[_STATE_AFTER_NAME] in _ENDED else int(fields[_START_TIME_AFTER_NAME])
