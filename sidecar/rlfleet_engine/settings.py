"""The extension's settings, with the identity of the engine's boot.

The boot identity must be the same in all API server processes of one boot and differ in the next.
It consists of the kernel's boot id and the start time of the engine's process.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from rlfleet_contract.settings import Settings
from rlfleet_engine import processes


def _boot() -> str:
    identity = f"{processes.kernel_boot()} {processes.started(processes.ENGINE)}"
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
