"""Checks the fleet's token in constant time.

The token is a file of a mounted Secret and is read again when it changes. It must stay true
that a missing, unreadable or empty file admits no caller.
"""

import hmac
from hashlib import sha256
from pathlib import Path

from rlfleet_contract.auth import token_of
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError


class FleetToken:
    """The token's digest, current with its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._digest: bytes | None = None

    def demand(self, authorization: str | None) -> None:
        """Raise Unauthorized unless the header contains the token."""
        if not self.admits(authorization):
            raise SidecarError(
                Code.UNAUTHORIZED,
                "token missing or wrong; send Authorization: Bearer TOKEN with the fleet's token",
            )

    def admits(self, authorization: str | None) -> bool:
        """Return whether the header contains the token."""
        given = sha256(token_of(authorization).encode()).digest()
        expected = self._expected()
        # Compared even without a token, so that the time reveals nothing.
        matches = hmac.compare_digest(given, expected or b"\0" * len(given))
        return expected is not None and matches

    def _expected(self) -> bytes | None:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                token = self._path.read_bytes().strip()
                self._digest = sha256(token).digest() if token else None
                self._seen = seen
        except OSError:
            self._seen = self._digest = None
        return self._digest
