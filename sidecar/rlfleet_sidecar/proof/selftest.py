"""Judges what an engine answers after reloads of its own base model. Pure.

It must stay true that nothing counts as shown that was not, and that a test which was cut
off is no failure: a process that dies says nothing about the kernels of its release.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.worker.commands import Version
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.selftest import EngineDescription, SelfTest, kind_of
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.probe import ProbeAnswer, spread

ATTEMPTS = 3
"""How often a test that its engine does not survive is begun at each start of it."""
MOST_REST_S = 1800.0
"""The longest time between two tests after more than that."""
FAR = 16.0
"""How far a kind is changed that a change by its own spread did not show."""
_SAFETY = 4.0
_FLOOR = 0.002
"""A difference in log probability that no reload is blamed for."""
_ROUNDING = 0.00001
"""To how much answers are rounded; a smaller move cannot be seen."""
_NAMED = 4
_WAY_OUT = (
    "use an engine image with a vLLM release that docs/reference/models.md lists for this model"
)
_AGAIN = "it is tested again by itself; look at the log of the engine's last start"


def key_of(engine: EngineDescription, tensors: Iterable[Tensor]) -> str:
    """Return what a test holds for."""
    lines = sorted(f"{one.name} {one.dtype} {one.shape}" for one in tensors)
    return sha256("\n".join([engine.fingerprint, *lines]).encode()).hexdigest()[:32]


def kinds_of(names: Iterable[str], unreached: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds of tensors that are changed one at a time."""
    return tuple(sorted({kind_of(name) for name in names} - set(unreached)))


def noise_of(answers: Sequence[ProbeAnswer]) -> float:
    """Return by how much answers of equal weights lie apart at most."""
    first = answers[0].logprobs
    return max(spread(first, answer.logprobs) for answer in answers)


def is_faithful(distance: float, noise: float) -> bool:
    """Tell whether two answers are those of equal weights."""
    return distance <= max(_FLOOR, _SAFETY * noise)


def unmoved(moves: Mapping[str, float], noise: float) -> tuple[str, ...]:
    """Return the kinds whose change moved no answer by more than noise."""
    return tuple(kind for kind, by in moves.items() if by <= max(_ROUNDING, noise))


def affordable(kinds: int, reload_s: float, budget_s: float) -> bool:
    """Tell whether each kind can be changed alone, and back at the end, within the budget."""
    return (kinds + 1) * reload_s <= budget_s


def unfaithful(engine: str, distance: float, noise: float) -> str:
    """Say that the reloaded base is not the base that booted."""
    return (
        f"{engine} does not reload in place: its own base model, reloaded, answers {distance:.4f}"
        f" away in log probability from its boot (noise {noise:.4f})"
    )


def stale(engine: str, kinds: Sequence[str]) -> str:
    """Say which tensors a reload leaves as they were."""
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    return (
        f"{engine} keeps tensors of its boot through a reload in place:"
        f" {', '.join(kinds[:_NAMED])}{more}"
    )


def is_due(known: SelfTest | None, key: str, now: float) -> bool:
    """Tell whether an engine has to be tested, given the last test."""
    return known is None or known.key != key or known.passed is None or is_due_again(known, now)


def as_of_release(known: SelfTest | None, *, is_tested: bool) -> SelfTest | None:
    """Return a remembered test as the running release has it; None for a refusal without reason.

    Which releases count as tested is the running extension's to say.
    """
    if known is None or (is_tested and known.code is Code.ENGINE_UNTESTED):
        return None
    return known.model_copy(update={"is_tested": is_tested})


def is_due_again(known: SelfTest | None, now: float) -> bool:
    """Tell whether a test that was put off is due; a clock that was set back puts nothing off."""
    if known is None or known.again_at is None:
        return False
    return not now < known.again_at <= now + MOST_REST_S


def put_off(cut: SelfTest, now: float, first_s: float) -> SelfTest:
    """Return a test that its engine did not survive as one that is begun again later.

    Until then the engine takes no version: nothing vouches for its reload.
    """
    rest_s = min(MOST_REST_S, first_s * 2 ** min(cut.attempts - ATTEMPTS, 32))
    reason = f"{cut.engine} ended {cut.attempts} times in the test of its reload"
    found = {"passed": False, "reason": reason, "boot": None, "again_at": now + rest_s}
    return cut.model_copy(update=found)


def is_exhausted(known: SelfTest | None, key: str) -> bool:
    """Tell whether an engine has ended in its test so often that the next one waits."""
    if known is None or known.key != key or known.passed is not None:
        return False
    return known.attempts >= ATTEMPTS


def attempts_of(known: SelfTest | None, key: str) -> int:
    """Return which attempt the next test is."""
    return known.attempts + 1 if known is not None and known.key == key else 1


def demand_reloadable(test: SelfTest | None, version: Version, base: Version) -> None:
    """Refuse a version that the engine cannot take up; the base model needs no reload."""
    if test is None or test.passed is not False or version == base:
        return
    way_out = _WAY_OUT if test.again_at is None else _AGAIN
    raise SidecarError(test.code or Code.ENGINE_UNFAITHFUL, f"{test.reason}; {way_out}")


def untested(begun: SelfTest) -> SelfTest:
    """Refuse an engine of a release that nobody tested, as its fleet wants."""
    reason = f"rlfleet was not tested with {begun.engine}, and nothing else vouches for it here"
    return begun.model_copy(
        update={"passed": False, "code": Code.ENGINE_UNTESTED, "reason": reason}
    )


def evidence_of(test: SelfTest | None) -> tuple[Evidence, ...]:
    """Return what a test adds to the proof of each version that its engine loads."""
    if test is None:
        return ()
    shown = ((Evidence.FAITHFUL, test.is_faithful), (Evidence.SENSITIVE, test.is_sensitive))
    return tuple(evidence for evidence, holds in shown if holds)
