"""Where the gate's file lies, what tells one start of the engine from another, and bounds.

The only reader of the environment and of /proc in this package. The boot identity
must be the same in all API server processes of one start of the engine and differ
after each: it is the kernel's boot and the start time of process 1, which is the
engine itself (the pod must not share its process namespace).
"""

import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Self

_MAX_BODY_BYTES = 512 * 1024 * 1024
_STATE_AFTER_NAME = 0
_ENDED = frozenset("ZXx")
_START_TIME_AFTER_NAME = 19
"""Field 22 of /proc/PID/stat, counted behind the command's closing bracket."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What this process needs to know."""

    gate_file: Path
    """Shared by the API server processes of one engine (RLFLEET_GATE_FILE)."""
    boot: str
    """Changes with every start of the engine (RLFLEET_BOOT only for tests)."""
    max_body_bytes: int
    """Of a request that waits or may have a salt (RLFLEET_MAX_BODY_BYTES): vLLM, too, has all
    of it in memory. Nothing is reserved for it."""
    api_key: str | None = field(default=None, repr=False)
    """What vLLM asks of its clients (VLLM_API_KEY, however it came into the environment)."""

    @classmethod
    def load(cls) -> Self:
        """Read them from the environment and the kernel."""
        environment = os.environ  # noqa: TID251 - the one reader
        return cls(
            gate_file=Path(environment.get("RLFLEET_GATE_FILE", "/dev/shm/rlfleet-gate")),  # noqa: S108 - memory shared by the engine's processes
            boot=environment.get("RLFLEET_BOOT") or _boot(),
            max_body_bytes=_natural("RLFLEET_MAX_BODY_BYTES", _MAX_BODY_BYTES),
            api_key=environment.get("VLLM_API_KEY") or None,
        )


def identity() -> dict[str, str]:
    """Return namespace, fleet and worker as far as the pod names them."""
    names = {name: f"RLFLEET_{name.upper()}" for name in ("namespace", "fleet", "worker")}
    environment = os.environ  # noqa: TID251 - the one reader
    return {name: environment[key] for name, key in names.items() if environment.get(key)}


def _natural(name: str, default: int) -> int:
    told = os.environ.get(name)  # noqa: TID251 - the one reader
    if not told:
        return default
    if not (told.isascii() and told.isdigit() and int(told)):
        raise ValueError(f"{name} is {told!r:.40} and must be a whole number above 0")
    return int(told)


def started(pid: int) -> int:
    """Return when a process started, in the kernel's ticks; 0 if there is none or it ended."""
    try:
        fields = _fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[_STATE_AFTER_NAME] in _ENDED else int(fields[_START_TIME_AFTER_NAME])


def _fields(pid: int) -> list[str]:
    """Return those of /proc/PID/stat behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _boot() -> str:
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    identity = f"{kernel} {_fields(1)[_START_TIME_AFTER_NAME]}"
    return sha256(identity.encode()).hexdigest()[:16]
