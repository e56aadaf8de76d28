"""The extension's settings, with the identity of the engine's boot.

Besides drain.py the only reader of /proc in this package. The boot identity must be the same in all
API server processes of one boot and differ in the next. It consists of the kernel's boot id and the
start time of process 1, the engine itself (so the pod must not share its process namespace).
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
"""Field 22 of /proc/PID/stat, counted after the closing bracket of the command."""


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _boot() -> str:
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    identity = f"{kernel} {_fields(1)[_START_TIME_AFTER_NAME]}"
    return sha256(identity.encode()).hexdigest()[:16]


class EngineSettings(Settings):
    """The environment variables of the extension."""

    FOREIGN: ClassVar[Mapping[str, str]] = {"api_key": "VLLM_API_KEY"}

    gate_file: Path = Path("/dev/shm/rlfleet-gate")  # noqa: S108 - memory shared by the engine's processes
    """File of the gate, shared by the API server processes of one engine."""
    preload_dir: Path = Path("/dev/shm/rlfleet-preload")  # noqa: S108 - the same
    """Directory where the ranks of one engine find one another's preloads."""
    termination_log: Path = Path("/dev/termination-log")
    """File whose content Kubernetes keeps as the message of the container that ended."""
    boot: str = Field(default_factory=_boot)
    """Identity of the engine's boot; set only by tests."""
    max_body_bytes: int = Field(default=512 * 1024 * 1024, gt=0)
    """Largest body of a request that waits or may have a salt; it is kept in memory, as in
    vLLM."""
    api_key: str | None = Field(default=None, repr=False)
    """vLLM's own API key, which the sidecar's probe needs too."""


def started(pid: int) -> int:
    """Return the start time of a process in the kernel's ticks; 0 if it does not run."""
    try:
        fields = _fields(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[_STATE_AFTER_NAME] in _ENDED else int(fields[_START_TIME_AFTER_NAME])
