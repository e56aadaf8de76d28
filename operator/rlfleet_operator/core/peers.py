"""What other workers showed of a version, for the next one to be compared with."""

from collections import Counter

from rlfleet_contract.proof import Proof
from rlfleet_operator.core.world import Worker, World


def proof_of(worker: Worker, version: str, world: World) -> Proof | None:
    """Return what a worker of the same template showed of this version.

    It is the lowest ordinal's of those that showed what most did: log probabilities are
    left out, which may differ a little between equals.
    """
    template = worker.pod.template_hash if worker.pod else ""
    proofs = [
        w.report.proof
        for w in world.desired
        if w.proved == version
        and w.report is not None
        and w.report.proof is not None
        and w.pod is not None
        and w.pod.template_hash == template
    ]
    votes = Counter(map(_shown, proofs))
    return max(proofs, key=lambda proof: votes[_shown(proof)], default=None)


def _shown(proof: Proof) -> tuple[str | None, tuple[str, ...], str]:
    return proof.checkpoint, proof.parameters, proof.tokens
