"""Evaluates an engine's answers after reloads of its base model. Pure.

It must stay true that nothing counts as shown without a test, and that an interrupted test is
no failure: the exit of a process says nothing about its release's kernels.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.worker.commands import Version
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.selftest import EngineDescription, SelfTest, kind_of
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.probe import ProbeAnswer, spread

ATTEMPTS = 3
"""How often a test starts again at the next boot, after exits of the engine during it."""
MOST_REST_S = 1800.0
"""The longest delay between later tests."""
FAR = 16.0
"""Strength of the second change of a kind, after one standard deviation had no effect."""
_SAFETY = 4.0
_FLOOR = 0.002
"""The smallest tolerance in log probability."""
_ROUNDING = 0.00001
"""The rounding of answers; a smaller difference cannot be seen."""
_NAMED = 4
_WAY_OUT = (
    "use an engine image with a vLLM release that docs/reference/models.md lists for this model"
)
_WORKERS = "set spec.replicas instead of --data-parallel-size"
_OTHER_TOOL = (
    "serve a base model quantised by another tool (LLM Compressor, GPTQModel), or a bfloat16 one"
    " with engine.args --quantization=fp8"
)
_AGAIN = "the sidecar repeats the test; see the engine's log before its last restart"


def key_of(engine: EngineDescription, tensors: Iterable[Tensor], engines: int) -> str:
    """Return the key for which a test's result is valid; ``engines``: data-parallel ones."""
    lines = sorted(f"{one.name} {one.dtype} {one.shape}" for one in tensors)
    if engines > 1:
        lines.append(f"{engines} engines")
    return sha256("\n".join([engine.fingerprint, *lines]).encode()).hexdigest()[:32]


def kinds_of(names: Iterable[str], unreached: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of tensors to change one at a time."""
    return tuple(sorted({kind_of(name) for name in names} - set(unreached)))


def noise_of(answers: Sequence[ProbeAnswer]) -> float:
    """Return the largest difference between answers of equal weights."""
    first = answers[0].logprobs
    return max(spread(first, answer.logprobs) for answer in answers)


def is_faithful(distance: float, noise: float) -> bool:
    """Return whether two answers can come from equal weights."""
    return distance <= max(_FLOOR, _SAFETY * noise)


def is_changed(load: Iterable[Installed]) -> bool:
    """Return whether a rank loaded other values than the files'."""
    return any(rank.changed != 0 for rank in load)


def unmoved(moves: Mapping[str, float | None], noise: float) -> tuple[str, ...]:
    """Return the kinds whose change had no effect beyond noise; None: it changed no value."""
    least = max(_ROUNDING, noise)
    return tuple(kind for kind, by in moves.items() if by is not None and by <= least)


def affordable(reloads: int, reload_s: float, budget_s: float) -> bool:
    """Return whether the budget allows these reloads, and one back at the end."""
    return (reloads + 1) * reload_s <= budget_s


def unfaithful(engine: str, distance: float, noise: float) -> str:
    """Return the message for a reloaded base that answers differently than at boot."""
    return (
        f"{engine} cannot reload in place: its base model, reloaded, differs by {distance:.4f} in"
        f" log probability from its boot (noise {noise:.4f})"
    )


def stale(engine: str, kinds: Sequence[str]) -> str:
    """Return the message for tensors whose reload changes no answer."""
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    named = ", ".join(kinds[:_NAMED]) + more
    return (
        f"{engine} answers as before with other values of {named}: it keeps the old ones after a"
        " reload in place, or does not use them"
    )


def is_due(known: SelfTest | None, key: str, now: float) -> bool:
    """Return whether an engine must be tested, given the last test."""
    return known is None or known.key != key or known.passed is None or is_due_again(known, now)


def as_of_release(known: SelfTest | None, *, is_tested: bool) -> SelfTest | None:
    """Return a remembered test for the running extension; None if its rejection is obsolete.

    Which releases count as tested depends on the running extension.
    """
    if known is None or (is_tested and known.code is Code.ENGINE_UNTESTED):
        return None
    return known.model_copy(update={"is_tested": is_tested})


def is_due_again(known: SelfTest | None, now: float) -> bool:
    """Return whether a postponed test is due; a clock that was set back postpones nothing."""
    if known is None or known.again_at is None:
        return False
    return not now < known.again_at <= now + MOST_REST_S


def put_off(cut: SelfTest, now: float, first_s: float) -> SelfTest:
    """Return a test during which the engine exited, postponed.

    Until then the engine accepts no version, because its reload is not tested.
    """
    rest_s = min(MOST_REST_S, first_s * 2 ** min(cut.attempts - ATTEMPTS, 32))
    reason = f"{cut.engine} exited {cut.attempts} times during the self-test of its reload"
    found = {"passed": False, "reason": reason, "boot": None, "again_at": now + rest_s}
    return cut.model_copy(update=found)


def is_exhausted(known: SelfTest | None, key: str) -> bool:
    """Return whether the engine exited so often during its test that the next is postponed."""
    if known is None or known.key != key or known.passed is not None:
        return False
    return known.attempts >= ATTEMPTS


def attempts_of(known: SelfTest | None, key: str) -> int:
    """Return the number of the next attempt."""
    return known.attempts + 1 if known is not None and known.key == key else 1


def demand_reloadable(test: SelfTest | None, version: Version, base: Version) -> None:
    """Raise for a version that the engine cannot load; the base model needs no reload."""
    if test is None or test.passed is not False or version == base:
        return
    way_out = test.way_out or (_WAY_OUT if test.again_at is None else _AGAIN)
    raise SidecarError(test.code or Code.ENGINE_UNFAITHFUL, f"{test.reason}; {way_out}")


def unseen(begun: SelfTest, engines: int) -> SelfTest:
    """Return the result for data-parallel engines: vLLM returns the first one's reports only."""
    reason = f"{begun.engine} is {engines} data-parallel engines, and vLLM reports one's weights"
    found = {"passed": False, "reason": reason, "way_out": _WORKERS}
    return begun.model_copy(update=found)


def unreloadable(begun: SelfTest, why: str) -> SelfTest:
    """Return the result for an engine whose weights no reload can replace."""
    reason = f"{begun.engine} cannot reload in place: {why}"
    return begun.model_copy(
        update={"passed": False, "reason": reason, "way_out": _OTHER_TOOL, "boot": None}
    )


def untested(begun: SelfTest) -> SelfTest:
    """Return the result for a release that was not tested, if the fleet requires that."""
    reason = (
        f"rlfleet was not tested with {begun.engine}, as engine.requireTested demands, or a"
        " disabled self-test"
    )
    return begun.model_copy(
        update={"passed": False, "code": Code.ENGINE_UNTESTED, "reason": reason}
    )


def evidence_of(test: SelfTest | None) -> tuple[Evidence, ...]:
    """Return the layers that a test adds to the proof of each version."""
    if test is None:
        return ()
    shown = ((Evidence.FAITHFUL, test.is_faithful), (Evidence.SENSITIVE, test.is_sensitive))
    return tuple(evidence for evidence, holds in shown if holds)
