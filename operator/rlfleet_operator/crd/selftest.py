"""What the fleet's engines showed of their own reload, as status keeps it for later pods."""

from typing import Self

from pydantic import Field

from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_operator.crd.field_types import Model

_NAMED = 8


class SelfTestStatus(Model):
    """The test of the reload in place, for the present pod template."""

    template: str
    """The pod template that it holds for."""
    key: str
    """Engine and form of the base model that it holds for."""
    engine: str
    """vLLM's release, the device and the model's architecture."""
    tested: bool = Field(description="Whether rlfleet's own suites ran against this release.")
    passed: bool = Field(
        description="Whether the base model, reloaded, answered as it booted, and each kind of"
        " tensor that was changed alone moved the answers."
    )
    reason: str | None = Field(
        default=None, max_length=1024, description="Why it did not pass; versions are refused."
    )
    distance: float | None = Field(
        default=None, description="How far the reloaded base answered from its boot (log prob)."
    )
    noise: float = Field(default=0, description="How far two answers of equal weights lie apart.")
    kinds: int = Field(
        default=0, description="Kinds of tensors changed alone; 0: sensitivity was not shown."
    )
    stale: list[str] = Field(
        default_factory=list, description="Kinds of tensors that stay as at boot, the first 8."
    )
    unreached: list[str] = Field(
        default_factory=list,
        description="Kinds that a prompt of text does not reach, the first 8: not tested.",
    )
    seconds: float = Field(default=0, description="How long it took, before the worker served.")

    @classmethod
    def of(cls, test: SelfTest, template: str) -> Self:
        """Keep what a worker reports."""
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
        """Return it in the words of the contract, for a pod that need not be tested again."""
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
