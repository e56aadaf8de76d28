"""The self-test of an engine's reload, before it serves.

A reload that consumes every byte, answers finitely and agrees with its peers can still leave
old weights: vLLM keeps packed copies of some tensors, the same ones in every worker. So the
sidecar tests each engine behind its closed gate. Its base model, reloaded from its own
files, must answer as after the boot (faithful). Each kind of tensor, changed alone and
reloaded, must change the answers (sensitive).
"""

import re

from rlfleet_contract.schema import ContractReply
from rlfleet_contract.worker.problems import Code

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def kind_of(name: str) -> str:
    """Return the kind of a tensor: its name without the numbers of layers and experts."""
    return _NUMBER.sub("N", name)


class EngineDescription(ContractReply):
    """The properties of an engine that its reload depends on."""

    release: str
    """vLLM's version."""
    is_tested: bool
    """Whether rlfleet's own suites ran against this release."""
    device: str
    """The device of its weights: cpu, cuda."""
    architectures: tuple[str, ...] = ()
    """As in config.json."""
    fingerprint: str
    """Changes with release, device, architecture, precision, parallelism and kernels."""
    unreached: tuple[str, ...] = ()
    """Kinds of tensors that a text prompt does not use, such as a vision tower's."""
    unsendable: str | None = None
    """Why a transfer would leave old weights; None: no reason is known."""
    unreloadable: str | None = None
    """Why no reload can succeed; None: no reason is known."""

    @property
    def title(self) -> str:
        """Name the engine in a message."""
        return f"vLLM {self.release} ({self.device}) with {', '.join(self.architectures) or '?'}"


class SelfTest(ContractReply):
    """The result of a self-test, or one under way."""

    key: str
    """Identifies the engine and the names, shapes and dtypes of the base model's tensors."""
    engine: str
    """The engine's title for messages."""
    is_tested: bool = True
    """Whether rlfleet's own suites ran against this release of vLLM."""
    passed: bool | None = None
    """None while the test runs, or after an interruption."""
    code: Code | None = None
    """The problem code for versions if it failed."""
    reason: str | None = None
    """Why it failed."""
    way_out: str | None = None
    """How to mend it; None: by another engine."""
    noise: float = 0
    """The largest difference between answers of equal weights."""
    distance: float | None = None
    """The largest difference in log probability between reloaded base and boot; None: untested."""
    kinds: int = 0
    """How many kinds of tensors were changed alone; 0: sensitivity is untested."""
    stale: tuple[str, ...] = ()
    """Kinds whose change had no effect: the engine still computes with their boot weights."""
    unreached: tuple[str, ...] = ()
    """Kinds that the probe cannot test."""
    seconds: float = 0
    boot: str | None = None
    """The tested boot."""
    attempts: int = 1
    """How often the test has started for this key."""
    again_at: float | None = None
    """When it starts again after too many engine exits during it; seconds since 1970."""

    @property
    def is_faithful(self) -> bool:
        """Whether the reloaded base answered as its boot."""
        return self.passed is True and self.distance is not None

    @property
    def is_sensitive(self) -> bool:
        """Whether each kind of tensor that the probe reaches changed the answers."""
        return self.is_faithful and self.kinds > 0
