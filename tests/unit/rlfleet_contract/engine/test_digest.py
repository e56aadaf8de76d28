"""Digests name their algorithm, and fit where every release has room for them."""

from hashlib import sha256

from blake3 import blake3
from pydantic import TypeAdapter

from rlfleet_contract.engine.safetensors import BLAKE3, SHA256, Digest, Tensor
from rlfleet_contract.worker.proof import DigestText

TENSOR = Tensor("a.weight", "BF16", (2, 3), 0, 12)
ENTRY = b"a.weight\0BF16\0(2, 3)\0"
DATA = bytes(range(12))


def digest(algorithm: object = BLAKE3, data: bytes = DATA) -> str:
    made = Digest(algorithm)  # type: ignore[arg-type]
    made.add(TENSOR, made.algorithm.new(data).digest())
    return made.hexdigest()


def test_a_version_s_digest_names_blake3_and_fits_a_proof() -> None:
    expected = blake3(ENTRY + blake3(DATA).digest()).hexdigest()

    assert digest() == f"blake3:{expected}"[:64]
    TypeAdapter(DigestText).validate_python(digest())


def test_an_adapter_s_digest_is_that_of_older_releases() -> None:
    assert digest(SHA256) == sha256(ENTRY + sha256(DATA).digest()).hexdigest()


def test_other_bytes_have_another_digest() -> None:
    assert digest(data=DATA[::-1]) != digest()
