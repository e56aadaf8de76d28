"""Which layers of a proof hold, and why one does not. Pure.

It must stay true that nothing is called shown that was not, and that what an engine only
shows by its numbers (log probabilities) is compared within a tolerance, while what is
bytes (tensors, parameters) is compared exactly. Greedy tokens are compared too, but two
sound engines may part at a near tie; where the memory of both was read, memory decides.
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
    """A reload that ended well, as long as it is not proved."""

    version: str
    boot: str
    digest: str
    """Of the checkpoint's tensors, as the sidecar read them and the engine consumed them."""
    ranks: tuple[Installed, ...]
    before: Proof | None
    """What was proved until then; None when the engine's weights are unknown."""
    probe: TrainerProbe | None = None
    """What the trainer's own model answers, if its manifest says so."""


def demand_consumed(tensors: int, nbytes: int, digest: str, ranks: Sequence[Installed]) -> None:
    """See that each rank consumed the checkpoint: nothing missing, nothing else, these bytes."""
    if not ranks:
        raise SidecarError(Code.RELOAD_FAILED, "no rank of the engine told what it installed")
    for rank, one in enumerate(ranks):
        if (one.tensors, one.nbytes) != (tensors, nbytes):
            raise SidecarError(
                Code.RELOAD_FAILED,
                f"rank {rank} installed {one.tensors} tensors of {one.nbytes} bytes;"
                f" the checkpoint has {tensors} of {nbytes}",
            )
        if one.digest != digest:
            raise SidecarError(
                Code.RELOAD_FAILED,
                f"rank {rank} installed other bytes than the checkpoint's: their digest is"
                f" {one.digest}, that of the checkpoint {digest}",
            )


def steady(answers: Sequence[ProbeAnswer], tolerance: float) -> bool:
    """Tell whether the answers to one prompt are one engine's; raises if they cannot be.

    False while nobody can tell: two that part at a near tie may, a third must side with one.
    """
    first = answers[0]
    apart = max(spread(first.logprobs, other.logprobs) for other in answers)
    if apart > tolerance:
        raise BadAnswerError(
            f"the same prompt was answered in two ways: its log probabilities are {apart:g}"
            f" apart; this engine's may be {tolerance:g}"
        )
    voices = {answer.tokens for answer in answers}
    if len(voices) > 1 and len(voices) == len(answers) > 2:  # noqa: PLR2004 - a third is the last
        raise BadAnswerError("the same prompt was answered greedily in three ways")
    return len(voices) < len(answers)


def shown_by(load: LoadedWeights, answer: ProbeAnswer, noise: float) -> tuple[Evidence, ...]:
    """Tell what a reload and the answer after it show; raises if the old weights stayed."""
    read = [rank.parameters for rank in load.ranks if rank.parameters is not None]
    kept = next((one.kept for one in read if one.kept), ())
    if kept:
        raise _stayed(f"other tensors came for {', '.join(kept)}, and they stand as before")
    has_moved = any(one.changed for one in read)
    if _brings_others(load) and not has_moved and _is_silent(load, answer, noise):
        raise _stayed("other tensors came, and neither its memory nor its answers changed")
    evidence = [Evidence.INSTALLED]
    if all(map(_is_as_it_must, load.ranks)):
        evidence.append(Evidence.PARAMETERS)
    return tuple(evidence)


def share_of(read: Sequence[ReadBack | None]) -> float | None:
    """Return how much of its model the rank with the least has read; None if one does not say."""
    shares = [None if one is None else one.share for one in read]
    known = [share for share in shares if share is not None]
    return min(known) if known and len(known) == len(shares) else None


def _brings_others(load: LoadedWeights) -> bool:
    """Decide whether a rank was fed other tensors than it was fed before."""
    return any(r.previous is not None and r.previous != r.digest for r in load.ranks)


def _is_silent(load: LoadedWeights, answer: ProbeAnswer, noise: float) -> bool:
    """Tell whether the engine answers as it did with the weights before."""
    if load.before is None or not load.before.logprobs:
        return False
    return spread(load.before.logprobs, answer.logprobs) <= noise


def _is_as_it_must(rank: Installed) -> bool:
    """Tell whether a rank's memory is what it was fed, or moved when the checkpoint did."""
    read = rank.parameters
    if read is None:
        return False
    if 0 < read.fed == read.as_fed:
        return True
    return rank.previous is not None and read.changed is (rank.previous != rank.digest)


def _stayed(how: str) -> SidecarError:
    return SidecarError(Code.PROOF_FAILED, f"the engine kept its old weights: {how}")


def demand_alike(expected: Proof | None, found: Proof | None) -> tuple[Evidence, ...]:
    """See that this worker shows what a peer of its version does; tells what that adds."""
    if expected is None:
        return ()
    told = "nothing is proved here" if found is None else difference(expected, found)
    if told is not None:
        raise SidecarError(
            Code.PROOF_FAILED, f"this worker is not like its peers of {expected.version}: {told}"
        )
    return (Evidence.PEERS,)


def demand_as_proved(proof: Proof | None, now: str | None) -> None:
    """See that the checkpoint which is stored under a proved version's name is the proved one."""
    if proof is None or None in {proof.checkpoint, now} or proof.checkpoint == now:
        return
    raise SidecarError(
        Code.CHECKPOINT_INVALID,
        f"{proof.version} was written again since it was proved: its tensors' digest is {now}, and"
        f" the engine holds {proof.checkpoint}; give it another name",
    )


def difference(expected: Proof, found: Proof) -> str | None:
    """Tell how two proofs of equal weights and equal engines differ; None if they do not."""
    if expected.version != found.version:
        return f"they proved {expected.version}, this worker {found.version}"
    if None not in {expected.checkpoint, found.checkpoint} and (
        expected.checkpoint != found.checkpoint
    ):
        return f"it installed tensors of digest {found.checkpoint}, they {expected.checkpoint}"
    is_read = bool(expected.parameters and found.parameters)
    if is_read and expected.parameters != found.parameters:
        return "its memory does not hold what theirs does"
    apart = spread(expected.logprobs, found.logprobs)
    tolerance = max(expected.tolerance, found.tolerance)
    if apart > tolerance:
        return f"its log probabilities are {apart:g} from theirs; {tolerance:g} is noise"
    if _answer_one_prompt(expected, found) and not is_read and expected.tokens != found.tokens:
        return f"it went on with {found.tokens}, they with {expected.tokens}"
    return None


def _answer_one_prompt(expected: Proof, found: Proof) -> bool:
    """Decide by the prompts' lengths; after another prompt, tokens answer another question."""
    return len({len(proof.logprobs) for proof in (expected, found) if proof.logprobs}) <= 1
