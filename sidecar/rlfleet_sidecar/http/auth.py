"""Who may command: whoever has the fleet's token, compared in constant time.

The token is a mounted Secret's file and is read again when it changes. It must stay true
that a missing, unreadable or empty file lets nobody in.
"""

import hmac
from hashlib import sha256
from pathlib import Path

from rlfleet_contract.auth import token_of
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError


class FleetToken:
    """Knows the token, as a digest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._digest: bytes | None = None

    def demand(self, authorization: str | None) -> None:
        """Let through a request with the token; raises for any other."""
        given = sha256(token_of(authorization).encode()).digest()
        expected = self._expected()
        # Compared even when it cannot match, so that the time tells nothing.
        matches = hmac.compare_digest(given, expected or b"\0" * len(given))
        if expected is None or not matches:
            raise SidecarError(
                Code.UNAUTHORIZED, "this needs the fleet's token: Authorization: Bearer <token>"
            )

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
