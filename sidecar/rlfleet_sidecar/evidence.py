"""Which layers of a proof hold, and why one does not. Pure.

It must stay true that nothing is called shown that was not, and that what one engine
only shows by its numbers (log probabilities) is compared within a tolerance, while
what is bytes (tensors, parameters, token ids) is compared exactly.
"""

from rlfleet_contract.problems import Code
from rlfleet_contract.proof import Evidence, Proof
from rlfleet_sidecar.errors import SidecarError


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


def difference(expected: Proof, found: Proof) -> str | None:
    """Tell how two proofs of equal weights and equal engines differ; None if they do not."""
    if expected.version != found.version:
        return f"they proved {expected.version}, this worker {found.version}"
    if _differ(expected.checkpoint, found.checkpoint):
        return (
            f"its checkpoint's tensors have the digest {found.checkpoint}, theirs"
            f" {expected.checkpoint}"
        )
    if expected.tokens != found.tokens:
        return f"the probe answered {found.tokens}, theirs {expected.tokens}"
    return None


def _differ(expected: str | None, found: str | None) -> bool:
    """Tell whether both are known and not the same."""
    return None not in {expected, found} and expected != found
