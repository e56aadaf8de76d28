"""What a worker can show of the weights that its engine holds, and what it has shown.

A proof is made behind the closed gate after a reload and kept for as long as it is true.
It is small, because every report carries it, and it holds what another worker of the
same version and template compares itself with.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

MAX_LOGPROBS = 64
DigestText = Annotated[str, Field(max_length=64)]


class Evidence(StrEnum):
    """One layer of a proof; the order of definition is that of the layers."""

    INSTALLED = "Installed"
    """The bytes that every rank of the engine consumed are the checkpoint's."""
    PARAMETERS = "Parameters"
    """What stands in the engine's memory was read back after the reload: it changed where
    the checkpoint did, and it is what stands in the memory of the peers."""
    PROBE = "Probe"
    """The engine answers the probe, finitely and twice the same."""
    PEERS = "Peers"
    """It answers as other workers do that proved this version, within the tolerance."""
    FAITHFUL = "Faithful"
    """This engine's base model, reloaded from its own files, answered as after its boot."""
    SENSITIVE = "Sensitive"
    """Each kind of tensor, changed alone and reloaded, moved this engine's answers."""
    TRAINER = "Trainer"
    """It answers the trainer's own prompt as the trainer's model did, within the tolerance."""


class Proof(BaseModel):
    """What was shown of one version in one boot of an engine."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    boot: str
    verified_by: tuple[Evidence, ...]
    """Which layers held; never more than was shown."""
    checkpoint: DigestText | None = None
    """Digest of the checkpoint's tensors (safetensors.Digest); None while nobody took it."""
    parameters: tuple[DigestText, ...] = ()
    """Digest of each rank's parameters and buffers; empty when they were not read back."""
    read_share: float | None = Field(default=None, ge=0, le=1)
    """How much of its model the rank with the least has read back; None when unknown."""
    tokens: DigestText
    """Digest of the token ids with which the engine went on greedily after the prompt."""
    logprobs: Annotated[tuple[FiniteFloat, ...], Field(max_length=MAX_LOGPROBS)] = ()
    """Log probabilities of the probe's prompt, one for each token after the first, rounded."""
    tolerance: float = Field(default=0.0, ge=0)
    """By how much a log probability may differ between answers of equal weights."""
