"""What one start of an engine showed of its own reload in place, before it served.

A reload that feeds every byte, answers finitely and agrees with its peers can still leave
weights behind: vLLM keeps packed copies of some tensors, and every worker keeps the same
ones. So an engine is tested behind its closed gate: its base model, reloaded from its own
files, must answer as it did after the boot (faithful), and each kind of tensor, changed
alone and reloaded, must move the answers (sensitive).
"""

import re

from rlfleet_contract.schema import ContractReply
from rlfleet_contract.worker.problems import Code

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def kind_of(name: str) -> str:
    """Return the kind of a tensor: its name without the numbers of layers and experts."""
    return _NUMBER.sub("N", name)


class EngineDescription(ContractReply):
    """What an engine is, as far as its reload depends on it."""

    release: str
    """vLLM's version."""
    is_tested: bool
    """Whether rlfleet's own suites ran against this release."""
    device: str
    """Where its weights lie: cpu, cuda."""
    architectures: tuple[str, ...] = ()
    """As config.json names them."""
    fingerprint: str
    """Differs where release, device, architecture, precision, parallelism or kernels differ."""
    unreached: tuple[str, ...] = ()
    """Kinds of tensors that a prompt of text does not pass through, such as a vision tower's."""
    unsendable: str | None = None
    """Why weights that a trainer sends would leave old ones; None: no reason is known."""

    @property
    def title(self) -> str:
        """Name the engine in a message."""
        return f"vLLM {self.release} ({self.device}) with {', '.join(self.architectures) or '?'}"


class SelfTest(ContractReply):
    """What was tested, and whether it passed."""

    key: str
    """What it holds for: engine and names, shapes and dtypes of the base model's tensors."""
    engine: str
    """The engine in words."""
    is_tested: bool = True
    """Whether rlfleet's own suites ran against this release of vLLM."""
    passed: bool | None = None
    """None while the test runs, or after it was cut off."""
    code: Code | None = None
    """What a version is refused with if it did not pass."""
    reason: str | None = None
    """Why it did not pass."""
    noise: float = 0
    """The largest difference between answers of equal weights."""
    distance: float | None = None
    """How far the reloaded base answered from its boot, in log probability; None: not shown."""
    kinds: int = 0
    """How many kinds of tensors were changed alone; 0: sensitivity was not shown."""
    stale: tuple[str, ...] = ()
    """Kinds whose change moved no answer: the engine goes on with the weights of its boot."""
    unreached: tuple[str, ...] = ()
    """Kinds that the probe cannot reach; for these nothing is claimed."""
    seconds: float = 0
    boot: str | None = None
    """The boot that was tested."""
    attempts: int = 1
    """How often the test was begun for this key."""
    again_at: float | None = None
    """When it is begun again after the engine has ended in it too often; seconds since 1970."""

    @property
    def is_faithful(self) -> bool:
        """Whether the reloaded base answered as its boot."""
        return self.passed is True and self.distance is not None

    @property
    def is_sensitive(self) -> bool:
        """Whether each kind of tensor that the probe reaches moved the answers."""
        return self.is_faithful and self.kinds > 0
