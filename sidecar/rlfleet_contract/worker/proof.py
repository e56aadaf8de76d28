"""The proof that a worker's engine computes with a version.

A sidecar makes it behind the closed gate after a reload, and keeps it while it is true.
It is small, because every report carries it. Another worker of the same version and
template compares itself with it.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

MAX_LOGPROBS = 64
DigestText = Annotated[str, Field(max_length=64)]


class Evidence(StrEnum):
    """The layers of a proof, in their order."""

    INSTALLED = "Installed"
    """Every rank of the engine consumed the checkpoint's bytes."""
    PARAMETERS = "Parameters"
    """The engine's memory, read back after the reload, changed where the checkpoint did, and
    equals the memory of peers."""
    PROBE = "Probe"
    """The engine's answers to the probe are finite, and the same both times."""
    PEERS = "Peers"
    """Its answers are those of peers that proved this version, within the tolerance."""
    FAITHFUL = "Faithful"
    """The base model, reloaded from its own files, answered as after the boot."""
    SENSITIVE = "Sensitive"
    """Each kind of tensor, changed alone and reloaded, moved this engine's answers."""
    TRAINER = "Trainer"
    """It answers the trainer's prompt as the trainer's model did, within the tolerance."""


class Proof(BaseModel):
    """The proof of one version in one boot of an engine."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    boot: str
    verified_by: tuple[Evidence, ...]
    """The layers that passed."""
    tensors: DigestText | None = None
    """Digest of the checkpoint's tensors (safetensors.Digest); None if it is not computed."""
    checkpoint: DigestText | None = None
    """The same by SHA-256, of workers of releases before 0.2: only they compare it."""
    parameters: tuple[DigestText, ...] = ()
    """Digest of each rank's parameters and buffers; empty if they were not read back."""
    read_share: float | None = Field(default=None, ge=0, le=1)
    """The share of its model that a rank has read back, the lowest of all; None when unknown."""
    tokens: DigestText
    """Digest of the token ids of the engine's greedy completion of the probe's prompt."""
    logprobs: Annotated[tuple[FiniteFloat, ...], Field(max_length=MAX_LOGPROBS)] = ()
    """Log probabilities of the probe's prompt, one for each token after the first, rounded."""
    tolerance: float = Field(default=0.0, ge=0)
    """The largest difference of a log probability between answers of equal weights."""
