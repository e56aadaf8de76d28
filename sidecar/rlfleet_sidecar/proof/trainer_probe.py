"""The answer of a trainer's model to a prompt, in a manifest. Pure.

Digests show that the engine has the trainer's bytes; this shows that it computes the same with
them. A trainer chooses any prompt of token ids, computes the log probability of each token
after the first, and sets a tolerance: the engine has other kernels, precision and padding.
"""

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
                f"got {len(self.logprobs)} logprobs for {len(self.tokens)} tokens (expected one"
                " for each token after the first)"
            )
        return self

    def demand_known(self, manifest: str, vocabulary: int) -> None:
        """Raise if a token of the prompt is not in the model's vocabulary."""
        if max(self.tokens) >= vocabulary:
            raise SidecarError(
                Code.CHECKPOINT_INVALID,
                f"{manifest} has token {max(self.tokens)} in its probe (vocabulary: {vocabulary});"
                " use a smaller token id",
            )

    def demand(self, found: tuple[float, ...]) -> None:
        """Raise if the engine's answer differs from the trainer's by more than the tolerance."""
        apart = spread(self.logprobs, found)
        if apart > self.tolerance:
            raise SidecarError(
                Code.PROOF_FAILED,
                f"the engine's log probabilities differ from the trainer's by {apart:.4f} (at most"
                f" {self.tolerance:g} by the manifest)",
            )
