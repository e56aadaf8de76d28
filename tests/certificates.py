"""A CA for tests, and the Secrets that cert-manager would write with it."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rlfleet_contract.tls import CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY

_PEM = serialization.Encoding.PEM
_DAY = dt.timedelta(days=1)


class Authority:
    """A CA with a key of its own."""

    def __init__(self, root: "Authority | None" = None) -> None:
        """An intermediate one if there is a root."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority" if root is None else "intermediate")
        signed = (root or self).signed(
            self._name,
            self._key.public_key(),
            x509.BasicConstraints(ca=True, path_length=None),
        )
        self.pem = signed.public_bytes(_PEM).decode()

    def secret(self, *names: str, valid_for: dt.timedelta = _DAY) -> dict[str, str]:
        """Return the Secret's data for a new certificate with these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        known = x509.SubjectAlternativeName(list(map(_general, names)))
        signed = self.signed(_named(names[0]), key.public_key(), known, valid_for)
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            CERTIFICATE_KEY: signed.public_bytes(_PEM).decode(),
            PRIVATE_KEY: private.decode(),
            CA_KEY: self.pem,
        }

    def signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extension: x509.ExtensionType,
        valid_for: dt.timedelta = _DAY,
    ) -> x509.Certificate:
        """Return a certificate of this CA."""
        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        made = made.public_key(key).serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - _DAY).not_valid_after(now + valid_for)
        made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(self._key, hashes.SHA256())


def mounted(folder: Path, data: dict[str, str], keys: Sequence[str] | None = None) -> Path:
    """Write a Secret's keys into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for key in keys or data:
        (folder / key).write_text(data[key])
    return folder


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
