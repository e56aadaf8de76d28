"""Decides which layers of a proof pass, and why one does not. Pure.

It must stay true that a proof contains no layer that was not tested. Log probabilities are
compared within a tolerance, bytes (tensors, parameters) exactly. Greedy tokens are compared
too, but two sound engines may differ at a near tie; if the memory of both was read, memory
decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rlfleet_contract.engine.rank_report import Installed, ReadBack
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.probe import BadAnswerError, ProbeAnswer, spread
from rlfleet_sidecar.proof.trainer_probe import TrainerProbe


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """A reload that succeeded and is not proved yet."""

    version: str
    boot: str
    digest: str
    """Of the checkpoint's tensors, by the sidecar and by the engine."""
    ranks: tuple[Installed, ...]
    before: Proof | None
    """The proof before the reload; None if the engine's weights were unknown."""
    probe: TrainerProbe | None = None
    """The answer of the trainer's model, if the manifest has one."""


def demand_consumed(tensors: int, nbytes: int, digest: str, ranks: Sequence[Installed]) -> None:
    """Raise unless each rank consumed exactly the checkpoint's tensors."""
    if not ranks:
        raise SidecarError(Code.RELOAD_FAILED, "no rank reported what it loaded; see vLLM's log")
    for rank, one in enumerate(ranks):
        if (one.tensors, one.nbytes) != (tensors, nbytes):
            raise SidecarError(
                Code.RELOAD_FAILED,
                f"rank {rank} loaded {one.tensors} tensors with {one.nbytes} bytes (expected"
                f" {tensors} with {nbytes})",
            )
        if one.digest != digest:
            raise SidecarError(
                Code.RELOAD_FAILED,
                f"rank {rank} loaded other bytes than the checkpoint's (digest {one.digest},"
                f" expected {digest})",
            )


def demand_steady(answers: Sequence[ProbeAnswer], tolerance: float) -> None:
    """Raise if answers to one prompt contradict each other.

    At a near tie one may have other tokens: two of them must have the same.
    """
    first = answers[0]
    apart = max(spread(first.logprobs, other.logprobs) for other in answers)
    if apart > tolerance:
        raise BadAnswerError(
            f"two answers to the same probe differ by {apart:g} in log probability (at most"
            f" {tolerance:g})"
        )
    if len({answer.tokens for answer in answers}) == len(answers) > 1:
        raise BadAnswerError(
            f"{len(answers)} greedy answers to the same probe have different tokens"
        )


def shown_by(
    load: LoadedWeights, memory: Sequence[ReadBack | None], answer: ProbeAnswer, noise: float
) -> tuple[Evidence, ...]:
    """Return the layers that a reload proves, with each rank's memory and the answer after it.

    Raises if weights stayed.
    """
    read = [one for one in memory if one is not None]
    _demand_as_loaded(read)
    has_moved = any(one.changed for one in read)
    if _brings_others(load) and not has_moved and _is_silent(load, answer, noise):
        raise _stayed("the checkpoint changed, but neither memory nor answers did")
    evidence = [Evidence.INSTALLED]
    if len(memory) == len(load.ranks) and all(map(_is_as_it_must, load.ranks, memory)):
        evidence.append(Evidence.PARAMETERS)
    return tuple(evidence)


def _demand_as_loaded(read: Sequence[ReadBack]) -> None:
    kept = next((one.kept for one in read if one.kept), ())
    if kept:
        raise _stayed(f"{', '.join(kept)} changed in the checkpoint, but not in memory")
    wrong = next((one.differing for one in read if one.differing), ())
    if wrong:
        raise SidecarError(
            Code.PROOF_FAILED,
            f"the engine's memory differs from the checkpoint in {', '.join(wrong)}; look for"
            " memory errors of its node",
        )


def share_of(read: Sequence[ReadBack | None]) -> float | None:
    """Return the lowest share of its model that a rank has read; None if one is unknown."""
    shares = [None if one is None else one.share for one in read]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


def _brings_others(load: LoadedWeights) -> bool:
    """Return whether a rank got other tensors than in the reload before."""
    return any(r.previous is not None and r.previous != r.digest for r in load.ranks)


def _is_silent(load: LoadedWeights, answer: ProbeAnswer, noise: float) -> bool:
    """Return whether the engine answers as with the weights before."""
    if load.before is None or not load.before.logprobs:
        return False
    return spread(load.before.logprobs, answer.logprobs) <= noise


def _is_as_it_must(rank: Installed, read: ReadBack | None) -> bool:
    """Return whether a rank's memory equals its tensors, or changed exactly if they did."""
    if read is None:
        return False
    if 0 < read.fed == read.as_fed:
        return True
    return rank.previous is not None and read.changed is (rank.previous != rank.digest)


def _stayed(how: str) -> SidecarError:
    return SidecarError(Code.PROOF_FAILED, f"the engine kept old weights: {how}")


def demand_alike(expected: Proof | None, found: Proof | None) -> tuple[Evidence, ...]:
    """Raise if the proof differs from a peer's; returns the layer that the comparison adds."""
    if expected is None:
        return ()
    why = "nothing is proved" if found is None else difference(expected, found)
    if why is not None:
        raise SidecarError(
            Code.PROOF_FAILED, f"this worker differs from its peers with {expected.version}: {why}"
        )
    return (Evidence.PEERS,)


def demand_as_proved(proof: Proof | None, now: str | None) -> None:
    """Raise if the checkpoint with a proved version's name is not the proved one."""
    if proof is None or not _differ(proof.tensors, now):
        return
    raise SidecarError(
        Code.CHECKPOINT_INVALID,
        f"{proof.version} was written again after its proof (digest {now}, proved"
        f" {proof.tensors}); give it another name",
    )


def _differ(one: str | None, other: str | None) -> bool:
    """Return whether two digests show different tensors; None shows nothing."""
    return None not in {one, other} and one != other


def difference(expected: Proof, found: Proof) -> str | None:
    """Return how two proofs of equal weights and engines differ, or None."""
    if expected.version != found.version:
        return f"version {found.version}, expected {expected.version}"
    if _differ(expected.tensors, found.tensors):
        return f"digest of the tensors is {found.tensors}, expected {expected.tensors}"
    is_read = bool(expected.parameters and found.parameters)
    if is_read and expected.parameters != found.parameters:
        return "digests of the parameters in memory differ"
    apart = spread(expected.logprobs, found.logprobs)
    tolerance = max(expected.tolerance, found.tolerance)
    if apart > tolerance:
        return f"log probabilities differ by {apart:g} (at most {tolerance:g})"
    if _answer_one_prompt(expected, found) and not is_read and expected.tokens != found.tokens:
        return f"digest of greedy tokens is {found.tokens}, expected {expected.tokens}"
    return None


def _answer_one_prompt(expected: Proof, found: Proof) -> bool:
    """Return whether both prompts have one length; else their tokens cannot be compared."""
    return len({len(proof.logprobs) for proof in (expected, found) if proof.logprobs}) <= 1
