"""Proofs for tests, as few words as possible."""

from typing import Any

from rlfleet_contract.worker.proof import Evidence, Proof


def proof(version: str = "step-1", **fields: Any) -> Proof:
    """Return what a worker showed of a version."""
    shown = {
        "version": version,
        "boot": "b1",
        "verified_by": (Evidence.PROBE,),
        "tokens": f"answers of {version}",
    }
    return Proof.model_validate(shown | fields)


def foreign(version: str) -> dict[str, Any]:
    """Return what no worker shows of the version, as it stands in a request's body."""
    return proof(version, tokens="answers of another model").model_dump(mode="json")
