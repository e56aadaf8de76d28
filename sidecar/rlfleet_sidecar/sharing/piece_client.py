"""Asks other sidecars for pieces over HTTP. Blocking; one per thread.

It must stay true that a worker which sends nothing, or little, is left soon: the thread serves a
prepare that can be superseded. Redirects are not followed, since the token is in each request.
"""

import http.client
import io
import socket
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from rlfleet_contract.paths import PIECES_PATH
from rlfleet_contract.tls import CA_KEY, verifying_context
from rlfleet_contract.worker.supply import Holding

STALL_S = 3.0
"""A worker that sends nothing for so long is left."""
PIECE_S = 20.0
"""A worker that takes longer for a piece is left: less than a MiB per second. The same time holds
for the head of its reply, and for what it says it has."""
_MOST_STATE = 1024 * 1024
_READ = 1024 * 1024
_OK, _NOT_YET, _NOT_FOUND = 200, 425, 404
_BROKEN = (OSError, http.client.HTTPException)


class Fetched(Enum):
    """What came of a request for a piece."""

    WHOLE = auto()
    NOT_YET = auto()
    ABSENT = auto()
    """The worker does not share this edition: not yet, or no longer."""
    BROKEN = auto()
    """It does not answer, is too slow, rejects the token, or sent something else."""


class PeerTLS(NamedTuple):
    """How the certificate of another sidecar is checked."""

    folder: Path
    """The mounted Secret with the CA."""
    name: str
    """The DNS name that the certificate must have; connections are to IP addresses."""


class _InTime(io.RawIOBase):
    """What a socket receives; a timeout once a whole reply has had its time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # It keeps the socket open until the reply is read, though the connection is closed before.
        self._received = sock.makefile("rb", buffering=0)
        self._end = time.monotonic() + PIECE_S

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any, /) -> int | None:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the reply takes too long")
        self._sock.settimeout(min(STALL_S, left_s))
        return self._received.readinto(view)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Reply(http.client.HTTPResponse):
    """A reply that ends in time, its head included."""

    def __init__(self, sock: socket.socket, *arguments: Any, **keywords: Any) -> None:
        super().__init__(sock, *arguments, **keywords)
        self.fp.close()
        self.fp = io.BufferedReader(_InTime(sock))


class _Connection(http.client.HTTPConnection):
    response_class = _Reply


class _SecureConnection(_Connection):
    """Speaks TLS with a sidecar; a certificate that does not fit is an OSError."""

    def __init__(self, address: str, tls: PeerTLS) -> None:
        super().__init__(address, timeout=STALL_S)
        self._tls = tls

    def connect(self) -> None:
        super().connect()
        context = verifying_context((self._tls.folder / CA_KEY).read_text(errors="replace"))
        self.sock = context.wrap_socket(self.sock, server_hostname=self._tls.name)


class PieceClient:
    """The connections of one thread to the workers before it."""

    def __init__(
        self, version: str, edition: str, token: Callable[[], str], tls: PeerTLS | None = None
    ) -> None:
        self._path = f"{PIECES_PATH}/{version}/{edition}"
        self._tls = tls
        self._token = token
        """Returns the fleet's token, which may be replaced at any time."""
        self._open: dict[str, http.client.HTTPConnection] = {}

    def close(self) -> None:
        """Close the connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def holding(self, address: str, first: int) -> Holding | Fetched:
        """Return what a worker has, with hashes from a piece on; ABSENT or BROKEN without."""
        try:
            reply = self._get(address, f"{self._path}?first={first}")
            body = reply.read(_MOST_STATE)
            if reply.status == _OK and reply.isclosed():
                return Holding.model_validate_json(body)
            self._settle(address, reply)
        except (*_BROKEN, ValidationError):
            self._drop(address)
            return Fetched.BROKEN
        return Fetched.ABSENT if reply.status == _NOT_FOUND else Fetched.BROKEN

    def fetch(
        self, address: str, number: int, piece: memoryview, *, forwards: bool
    ) -> tuple[Fetched, float]:
        """Fill ``piece`` with that of this number; returns also how long its bytes took.

        Args:
            address: The worker that is asked.
            number: The piece.
            piece: As long as the piece.
            forwards: Whether this worker sends what it receives to another one.

        """
        end = time.monotonic() + PIECE_S
        try:
            reply = self._get(address, f"{self._path}/{number}?forwards={str(forwards).lower()}")
            if reply.status == _OK and reply.length == len(piece):
                begun = time.monotonic()
                return self._filled(address, reply, piece, end), time.monotonic() - begun
            reply.read(_READ)
            self._settle(address, reply)
        except _BROKEN:
            self._drop(address)
            return Fetched.BROKEN, 0.0
        found = {_NOT_YET: Fetched.NOT_YET, _NOT_FOUND: Fetched.ABSENT}
        return found.get(reply.status, Fetched.BROKEN), 0.0

    def _filled(
        self, address: str, reply: http.client.HTTPResponse, piece: memoryview, end: float
    ) -> Fetched:
        got = 0
        while got < len(piece):
            read = reply.read1(min(_READ, len(piece) - got))
            if not read or time.monotonic() > end:
                self._drop(address)
                return Fetched.BROKEN
            piece[got : got + len(read)] = read
            got += len(read)
        reply.read()
        self._settle(address, reply)
        return Fetched.WHOLE

    def _get(self, address: str, path: str) -> http.client.HTTPResponse:
        kept = self._open.get(address)
        if kept is not None:
            try:
                return self._asked(kept, path)
            except ConnectionError:
                # A sidecar closes connections that were idle for long, or are too many.
                self._drop(address)
        self._open[address] = made = self._connection(address)
        return self._asked(made, path)

    def _connection(self, address: str) -> http.client.HTTPConnection:
        if self._tls is None:
            return _Connection(address, timeout=STALL_S)
        return _SecureConnection(address, self._tls)

    def _asked(self, connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._token()}"})
        return connection.getresponse()

    def _settle(self, address: str, reply: http.client.HTTPResponse) -> None:
        """Keep the connection only if the whole reply was read."""
        if not reply.isclosed():
            self._drop(address)

    def _drop(self, address: str) -> None:
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()
