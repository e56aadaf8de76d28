"""The proof that a worker's own proof of the same version must match. Pure."""

from collections import Counter
from collections.abc import Iterable

from rlfleet_contract.worker.proof import Proof

Kind = tuple[str, str]
"""Version and hash of the pod template: only proofs with the same pair are comparable."""


def elected(shown: Iterable[tuple[Kind, Proof]]) -> dict[Kind, Proof]:
    """Return for each kind the first proof of its majority.

    Log probabilities do not count, because they differ slightly between equal workers.
    """
    by_kind: dict[Kind, list[Proof]] = {}
    for kind, proof in shown:
        by_kind.setdefault(kind, []).append(proof)
    return {kind: _elected(proofs) for kind, proofs in by_kind.items()}


def _elected(proofs: list[Proof]) -> Proof:
    votes = Counter(map(_shown, proofs))
    return max(proofs, key=lambda proof: votes[_shown(proof)])


def _shown(proof: Proof) -> tuple[str | None, tuple[str, ...], str]:
    return proof.tensors or proof.checkpoint, proof.parameters, proof.tokens
