"""Checks the fleet's token in constant time.

The token is a file of a mounted Secret. During a rotation the Secret has a second token, which is
accepted too. The files are read again when one changes. It must stay true that a missing,
unreadable or empty file admits no caller, and that no caller is rejected while files are replaced.
"""

import hmac
import os
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from rlfleet_contract.auth import ALSO_ACCEPTED, REVISION_KEY, TOKEN_KEY, token_of
from rlfleet_contract.mounted_files import FileStates, states_of
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError

_KEYS = (TOKEN_KEY, *ALSO_ACCEPTED, REVISION_KEY)
_READS = 100
"""How often files are read that are replaced during the read."""
_NO_TOKEN = b"\0" * sha256().digest_size


class _Mounted(NamedTuple):
    """What the mounted Secret holds."""

    digests: tuple[bytes, ...] = ()
    """Of the tokens that are accepted; none without the token to send."""
    revision: str | None = None


class FleetToken:
    """The accepted tokens' digests, current with their files."""

    def __init__(self, path: Path) -> None:
        """Read the token at ``path`` and its neighbours in the same folder."""
        self._path = path
        self._files: list[Path] = []
        self._seen: FileStates | None = None
        """The files' states when they were read; None if they must be read again."""
        self._mounted = _Mounted()

    def demand(self, authorization: str | None) -> None:
        """Raise Unauthorized unless the header contains an accepted token."""
        if not self.admits(authorization):
            raise SidecarError(
                Code.UNAUTHORIZED,
                "token missing or wrong; send Authorization: Bearer TOKEN with the fleet's token",
            )

    def admits(self, authorization: str | None) -> bool:
        """Return whether the header contains an accepted token."""
        given = sha256(token_of(authorization).encode()).digest()
        accepted = self._current().digests
        # Compared with each, and even without a token, so that the time reveals nothing.
        matches = [hmac.compare_digest(given, one) for one in accepted or (_NO_TOKEN,)]
        return bool(accepted) and any(matches)

    def revision(self) -> str | None:
        """Return the revision of the mounted Secret; None if it has none."""
        return self._current().revision

    def _current(self) -> _Mounted:
        if not self._is_current():
            self._read()
        return self._mounted

    def _is_current(self) -> bool:
        """Return whether the files that were read are still those that are mounted.

        This follows the token's link too, which a kubelet leads elsewhere to replace any of them.
        """
        try:
            return self._seen is not None and states_of(self._files) == self._seen
        except OSError:
            return False

    def _read(self) -> None:
        """Read the files until none was replaced during the read."""
        for _ in range(_READS):
            try:
                files = _files(self._path)
                seen = states_of(files)
                if (files, seen) == (self._files, self._seen):
                    return
                self._mounted, self._files, self._seen = _read(files), files, seen
            except OSError:
                self._mounted, self._seen = _Mounted(), None
        self._seen = None


def _files(token: Path) -> list[Path]:
    """Return the files of one state of the Secret.

    A kubelet replaces the folder that the token's link leads to by one rename, and makes links for
    new keys only afterwards.
    """
    folder = Path(os.path.realpath(token)).parent
    return [token, *(folder / key for key in _KEYS[1:])]


def _read(paths: list[Path]) -> _Mounted:
    token, *others, revision = map(_content, paths)
    if not token:
        return _Mounted()
    digests = tuple(sha256(one).digest() for one in (token, *others) if one)
    return _Mounted(digests, revision.decode("ascii", "replace") or None)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except FileNotFoundError:
        return b""
