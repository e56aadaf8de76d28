"""TLS between operator, sidecars and trainers, with the keys of a Secret as cert-manager writes it.

A server presents the newest certificate of a mounted Secret without a restart. A client checks
the fleet's own CA and one name, whatever address it connects to: pods have no stable address.
"""

import logging
import ssl
from pathlib import Path

from rlfleet_contract.mounted_files import states_of

CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY = "ca.crt", "tls.crt", "tls.key"
"""The keys of the Secret (kubernetes.io/tls, and ca.crt as cert-manager adds it)."""
_log = logging.getLogger(__name__)


def serving_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a server; raises OSError if the folder holds no usable pair.

    At each handshake it looks whether the pair was replaced. One that cannot be loaded, as in
    the middle of its replacement, leaves the former in use.
    """
    pair = (folder / CERTIFICATE_KEY, folder / PRIVATE_KEY)
    # The states first: files that are replaced in between are then loaded at the next handshake.
    seen = states_of(pair)
    served = current = _loaded(*pair)

    def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal current, seen
        try:
            if (now := states_of(pair)) != seen:
                seen = now
                current = _loaded(*pair)
        except OSError as error:
            # Once for each state of the files, as the kubelet's probes alone are many.
            _log.warning("Failed to load a new certificate", extra={"error": str(error)})
        connection.context = current

    served.sni_callback = renew
    return served


def verifying_context(ca: str) -> ssl.SSLContext:
    """Return the context of a client that trusts these CAs (PEM) alone; raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A Secret of cert-manager may hold an intermediate CA without its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        # PEM is ASCII; the comments in a bundle need not be.
        context.load_verify_locations(cadata=ca.encode("ascii", "ignore").decode())
    except ValueError as error:
        raise ssl.SSLError(str(error)) from error
    return context


def _loaded(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        names = f"{certificate.parent}: {certificate.name} and {key.name}"
        raise OSError(f"{names} are no usable pair: {error}; replace the Secret") from error
    return context
