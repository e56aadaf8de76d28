"""The result of the engines' self-test, which status keeps for later pods."""

from typing import Self

from pydantic import Field

from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_operator.crd.field_types import Model

_NAMED = 8


class SelfTestStatus(Model):
    """Result of the self-test, for the current pod template."""

    template: str
    """Hash of the pod template that the result is about."""
    key: str
    """Engine and form of the base model that the result is about."""
    engine: str
    """vLLM's release, the device and the model's architecture."""
    tested: bool = Field(description="Whether rlfleet was tested with this release.")
    passed: bool = Field(
        description="Whether the base model gave the same answers after a reload, and each tested"
        " kind of tensor changed the answers."
    )
    reason: str | None = Field(
        default=None, max_length=1024, description="Why it failed; workers then reject versions."
    )
    distance: float | None = Field(
        default=None, description="Change of log probabilities after the base was reloaded."
    )
    noise: float = Field(
        default=0, description="Difference of log probabilities with equal weights."
    )
    kinds: int = Field(
        default=0, description="Kinds of tensors that were tested; 0: sensitivity is unknown."
    )
    stale: list[str] = Field(
        default_factory=list, description="Kinds that a reload did not change, the first 8."
    )
    unreached: list[str] = Field(
        default_factory=list,
        description="Kinds that no text prompt uses, the first 8; they are not tested.",
    )
    seconds: float = Field(default=0, description="Duration, before the worker served.")

    @classmethod
    def of(cls, test: SelfTest, template: str) -> Self:
        """Return what status keeps of a worker's result."""
        return cls(
            template=template,
            key=test.key,
            engine=test.engine,
            tested=test.is_tested,
            passed=test.passed is True,
            reason=test.reason[:1024] if test.reason else None,
            distance=test.distance,
            noise=test.noise,
            kinds=test.kinds,
            stale=list(test.stale[:_NAMED]),
            unreached=list(test.unreached[:_NAMED]),
            seconds=test.seconds,
        )

    def for_pod(self) -> str:
        """Return the contract's JSON, with which a new pod skips the test."""
        test = SelfTest(
            key=self.key,
            engine=self.engine,
            is_tested=self.tested,
            passed=self.passed,
            distance=self.distance,
            noise=self.noise,
            kinds=self.kinds,
            unreached=tuple(self.unreached),
            seconds=self.seconds,
        )
        return test.model_dump_json(exclude_defaults=True)
