"""What proves a release is verified by others' code, without a network."""

import base64
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_public_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from dev.release import provenance
from dev.release.signing import Key
from dev.steps import StepFailed

KEY = Key(ec.derive_private_key(1234567, ec.SECP256R1()))
OTHER = Key(ec.derive_private_key(7654321, ec.SECP256R1()))


def own_key(key: Key) -> SSlibKey:
    """The public key, as a user gives it to the library."""
    keyid = hashlib.sha256(key.public()).hexdigest()
    return SSlibKey.from_crypto(load_pem_public_key(key.public()), keyid=keyid)


def test_a_signature_is_verified_by_openssl_and_by_no_other_key(tmp_path: Path) -> None:
    content, signature = tmp_path / "SHA256SUMS", tmp_path / "signature"
    content.write_bytes(b"the checksums")
    signature.write_bytes(base64.b64decode(KEY.sign_as_text(content.read_bytes())))

    def verified(key: Key) -> int:
        public = tmp_path / "release.pub"
        public.write_bytes(key.public())
        words = ["openssl", "dgst", "-sha256", "-verify", str(public)]
        words += ["-signature", str(signature), str(content)]
        return subprocess.run(words, check=False, capture_output=True).returncode

    assert verified(KEY) == 0
    assert verified(OTHER) != 0
    content.write_bytes(b"the checksums.")
    assert verified(KEY) != 0


def test_the_same_content_has_the_same_signature() -> None:
    assert KEY.sign(b"content") == KEY.sign(b"content") != OTHER.sign(b"content")


def test_provenance_names_each_artefact_in_an_envelope_that_the_library_verifies(
    tmp_path: Path,
) -> None:
    artefact = tmp_path / "rlfleet.whl"
    artefact.write_bytes(b"a wheel")
    made = provenance.statement([artefact], "c0ffee", {"images": False})

    envelope = Envelope.from_dict(json.loads(KEY.envelope(made)))
    envelope.verify([own_key(KEY)], 1)
    said = json.loads(envelope.payload)

    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://slsa.dev/provenance/v1"
    digest = hashlib.sha256(b"a wheel").hexdigest()
    assert said["subject"] == [{"name": "rlfleet.whl", "digest": {"sha256": digest}}]
    source, *locks = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source == {"name": "source", "digest": {"gitCommit": "c0ffee"}}
    assert "requirements/operator.lock" in {lock["name"] for lock in locks}
    with pytest.raises(VerificationError):
        Envelope.from_dict(json.loads(KEY.envelope(made))).verify([own_key(OTHER)], 1)


def test_an_envelope_that_was_changed_is_no_proof() -> None:
    envelope = Envelope.from_dict(json.loads(KEY.envelope(b'{"subject": "a"}')))
    envelope.payload = b'{"subject": "b"}'

    with pytest.raises(VerificationError):
        envelope.verify([own_key(KEY)], 1)


def test_a_signature_is_of_ecdsa_over_p_256() -> None:
    public = load_pem_public_key(KEY.public())
    assert isinstance(public, ec.EllipticCurvePublicKey)

    public.verify(KEY.sign(b"content"), b"content", ec.ECDSA(SHA256()))
    with pytest.raises(InvalidSignature):
        public.verify(KEY.sign(b"content"), b"other", ec.ECDSA(SHA256()))


def test_a_key_that_will_not_do_is_refused_with_the_way_out(tmp_path: Path) -> None:
    wrong = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = wrong.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "rsa").write_bytes(pem)
    (tmp_path / "text").write_bytes(b"no key")

    for name in ("rsa", "text", "missing"):
        with pytest.raises(StepFailed, match="openssl ecparam"):
            Key.load(tmp_path / name)
