"""What a trainer's own model answers to a prompt, as its manifest says it. Pure.

Digests show that the engine holds the trainer's bytes; this shows that it computes with
them what the trainer does. A trainer takes any prompt of token ids, asks its model for the
log probability of each token after the first, and states by how much the engine's may
differ: kernels, precision and padding are not the trainer's.
"""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.probe import spread

_LONGEST = 256


class TrainerProbe(BaseModel):
    """`{"tokens": [ids], "logprobs": [floats], "tolerance": 0.1}` of a manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=2, max_length=_LONGEST)
    ]
    """The prompt, 2 to 256 token ids."""
    logprobs: tuple[FiniteFloat, ...]
    """Natural log probability of each token after the first, given those before it."""
    tolerance: Annotated[FiniteFloat, Field(gt=0)]
    """Largest difference of one log probability that the trainer accepts."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(self.logprobs) != len(self.tokens) - 1:
            raise ValueError(
                f"has {len(self.logprobs)} logprobs for {len(self.tokens)} tokens; one for each"
                " token after the first is expected"
            )
        return self

    def demand_known(self, manifest: Path, vocabulary: int) -> None:
        """See that the model knows each token of the prompt."""
        if max(self.tokens) >= vocabulary:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{manifest} has token {max(self.tokens)} in its probe; the model's vocabulary has"
                f" {vocabulary}",
            )

    def demand(self, found: tuple[float, ...]) -> None:
        """Compare the engine's answer with the trainer's; raises if they differ by more."""
        apart = spread(self.logprobs, found)
        if apart > self.tolerance:
            raise SidecarError(
                Code.PROOF_FAILED,
                f"the engine's log probabilities are {apart:.4f} from the trainer's own; the"
                f" manifest accepts {self.tolerance:g}",
            )
