"""What workers showed of a version, for the next one to be compared with. Pure."""

from collections import Counter
from collections.abc import Iterable

from rlfleet_contract.worker.proof import Proof

Kind = tuple[str, str]
"""Version and pod template: only what was shown of the same of both can be compared."""


def elected(shown: Iterable[tuple[Kind, Proof]]) -> dict[Kind, Proof]:
    """Return for each kind the first proof of those that show what most of it do.

    Log probabilities are left out, which may differ a little between equals.
    """
    by_kind: dict[Kind, list[Proof]] = {}
    for kind, proof in shown:
        by_kind.setdefault(kind, []).append(proof)
    return {kind: _elected(proofs) for kind, proofs in by_kind.items()}


def _elected(proofs: list[Proof]) -> Proof:
    votes = Counter(map(_shown, proofs))
    return max(proofs, key=lambda proof: votes[_shown(proof)])


def _shown(proof: Proof) -> tuple[str | None, tuple[str, ...], str]:
    return proof.checkpoint, proof.parameters, proof.tokens
