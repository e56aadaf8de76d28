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

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("authority")
        made = self._builder(self._name, self._key.public_key(), _DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.pem = made.sign(self._key, hashes.SHA256()).public_bytes(_PEM).decode()

    def secret(self, *names: str, valid_for: dt.timedelta = _DAY) -> dict[str, str]:
        """Return the Secret's data for a new certificate with these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._builder(_named(names[0]), key.public_key(), valid_for)
        known = x509.SubjectAlternativeName(list(map(_general, names)))
        signed = made.add_extension(known, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            CERTIFICATE_KEY: signed.public_bytes(_PEM).decode(),
            PRIVATE_KEY: private.decode(),
            CA_KEY: self.pem,
        }

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, valid_for: dt.timedelta
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + valid_for)
        )


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
