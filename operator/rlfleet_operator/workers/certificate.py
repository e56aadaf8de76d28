"""What a sidecar's certificate is checked by: the CA in the Secret that its pod mounts.

The Secret is read again every 30 s while requests are sent, so that a new CA needs no restart. The
last CA stays in use while the API server does not answer.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from rlfleet_contract import tls
from rlfleet_contract.single_flight import SingleFlight
from rlfleet_operator.core.manifests import sidecar_tls
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.errors import OperatorError, Refused

_log = logging.getLogger(__name__)
_KEPT_S = 30.0
_ABSENT_S = 1.0

ReadCA = Callable[[str, str], Awaitable[str]]
"""Returns the CA (PEM) of a Secret, by namespace and name; raises OperatorError."""


class _Known(NamedTuple):
    """What was read last."""

    ca: str
    """Empty until one was read."""
    context: ssl.SSLContext | OperatorError
    until: float
    """When to read again, by the monotonic clock."""


_UNREAD = _Known("", Refused("not read yet"), 0.0)


@dataclass(frozen=True, slots=True)
class SidecarCertificate:
    """What the certificate of a fleet's sidecars is checked by."""

    name: str
    """The DNS name that it must have."""
    context: Callable[[], Awaitable[ssl.SSLContext]]
    """Returns the context of a connection; raises OperatorError without a CA."""


class SidecarCertificates:
    """The CAs of all fleets whose sidecars speak TLS."""

    def __init__(self, read: ReadCA, kept_s: float = _KEPT_S) -> None:
        """Read with ``read``, and again after ``kept_s`` seconds."""
        self._read, self._kept_s = read, kept_s
        self._known: dict[tuple[str, str], _Known] = {}
        """By namespace and name of the Secret."""
        self._reading = SingleFlight[tuple[str, str]]()

    def of(self, key: tuple[str, str], pod: Pod) -> SidecarCertificate | None:
        """Return what a fleet's pod is checked by; None if its sidecar speaks plain HTTP.

        ``key`` is the fleet's namespace and name.
        """
        if pod.tls_secret is None:
            return None
        (namespace, fleet), secret = key, pod.tls_secret
        name = sidecar_tls.server_name(fleet, namespace)
        return SidecarCertificate(name, lambda: self._context(namespace, secret))

    async def _context(self, namespace: str, secret: str) -> ssl.SSLContext:
        found = self._known.get((namespace, secret))
        if found is None or time.monotonic() >= found.until:
            reading = self._reading.begin(
                (namespace, secret), lambda: self._read_once(namespace, secret)
            )
            # With a CA at hand no request waits for the API server.
            if found is None or isinstance(found.context, OperatorError):
                found = await asyncio.shield(reading)
        if isinstance(found.context, OperatorError):
            raise found.context
        return found.context

    async def _read_once(self, namespace: str, secret: str) -> _Known:
        before = self._known.get((namespace, secret), _UNREAD)
        try:
            ca = await self._read(namespace, secret)
            # The same context for the same CA, so that connections are used again.
            context = before.context if ca == before.ca else _context_of(secret, ca)
            found = _Known(ca, context, time.monotonic() + self._kept_s)
        except OperatorError as error:
            # Not at each request: all workers of a fleet without its Secret would ask for it.
            until = time.monotonic() + min(_ABSENT_S, self._kept_s)
            found = _Known("", error, until)
            if before.ca:
                if isinstance(error, Refused):
                    extra = {"namespace": namespace, "secret": secret, "error": str(error)}
                    _log.warning("New CA is unusable, the former stays in use", extra=extra)
                found = before._replace(until=time.monotonic() + self._kept_s)
        self._known[namespace, secret] = found
        return found


def _context_of(secret: str, ca: str) -> ssl.SSLContext:
    try:
        return tls.verifying_context(ca)
    except OSError as error:
        raise Refused(
            f"Secret {secret}: data.{tls.CA_KEY} holds no certificate ({error}), expected PEM"
        ) from error
