"""Signatures that anybody verifies with a public key and without a network.

ECDSA over P-256 and SHA-256, as `cosign verify-blob --key` and `openssl dgst` verify it. By
RFC 6979 the same file and key make the same signature. The key is the user's: never in the
repository, and read from the file that RELEASE_KEY names.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature

from dev.steps import StepFailed

IN_TOTO = "application/vnd.in-toto+json"
WAY_OUT = "make one with `openssl ecparam -name prime256v1 -genkey -noout -out release.key`"


@dataclass(frozen=True)
class Key:
    """A private key for signing."""

    private: ec.EllipticCurvePrivateKey

    @classmethod
    def load(cls, path: Path) -> "Key":
        """Read a key; raises StepFailed with the way out if it will not do."""
        try:
            found = load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise StepFailed(f"RELEASE_KEY={path} cannot be read ({error}); {WAY_OUT}") from error
        if not isinstance(found, ec.EllipticCurvePrivateKey) or found.curve.name != "secp256r1":
            raise StepFailed(f"RELEASE_KEY={path} is no key of ECDSA P-256; {WAY_OUT}")
        return cls(found)

    def public(self) -> bytes:
        """Return the public key as PEM."""
        return self.private.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, content: bytes) -> bytes:
        """Return the signature in DER."""
        return self.private.sign(content, ec.ECDSA(SHA256(), deterministic_signing=True))

    def sign_as_text(self, content: bytes) -> str:
        """Return the signature as cosign writes and reads it."""
        return base64.b64encode(self.sign(content)).decode()

    def envelope(self, statement: bytes) -> str:
        """Return an in-toto statement in a signed envelope (DSSE)."""
        envelope = Envelope(statement, IN_TOTO, {})
        keyid = hashlib.sha256(self.public()).hexdigest()
        envelope.signatures[keyid] = Signature(keyid, self.sign(envelope.pae()).hex())
        return json.dumps(envelope.to_dict(), indent=1) + "\n"
