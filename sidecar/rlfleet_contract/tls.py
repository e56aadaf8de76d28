"""TLS between operator, sidecars and trainers, with the keys of a Secret as cert-manager writes it.

A server presents the newest certificate of a mounted Secret without a restart. A client checks
the fleet's own CA and one name, whatever address it connects to: pods have no stable address.
"""

import logging
import ssl
from pathlib import Path

CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY = "ca.crt", "tls.crt", "tls.key"
"""The keys of the Secret (kubernetes.io/tls, and ca.crt as cert-manager adds it)."""
_log = logging.getLogger(__name__)

_Look = tuple[tuple[int, int, int], ...]


def serving_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a server; raises OSError if the folder holds no usable pair.

    At each handshake it looks whether the pair was replaced. One that cannot be loaded, as in
    the middle of its replacement, leaves the former in use.
    """
    current, seen = _loaded(folder), _look(folder)

    def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal current, seen
        try:
            if (now := _look(folder)) != seen:
                current, seen = _loaded(folder), now
        except OSError as error:
            _log.warning("Failed to load a new certificate", extra={"error": str(error)})
        connection.context = current

    served = _loaded(folder)
    served.sni_callback = renew
    return served


def verifying_context(ca: str) -> ssl.SSLContext:
    """Return the context of a client that trusts these CAs (PEM) alone; raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca)
    return context


def _loaded(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / CERTIFICATE_KEY, folder / PRIVATE_KEY)
    return context


def _look(folder: Path) -> _Look:
    states = [(folder / name).stat() for name in (CERTIFICATE_KEY, PRIVATE_KEY)]
    return tuple((state.st_mtime_ns, state.st_ino, state.st_size) for state in states)
