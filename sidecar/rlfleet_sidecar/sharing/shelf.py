"""What this worker shares now: the version that it receives, and staged ones.

It must stay true that only versions are found which a prepare with a supply ordered.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.sharing.offering import Offering


class PieceShelf:
    """Finds offerings by version and edition. For any thread."""

    def __init__(self, staged: Callable[[str], Offering | None]) -> None:
        self._staged = staged
        """Returns the offering of a staged version. Blocking."""
        self._received: dict[str, Offering] = {}

    @contextmanager
    def offered(self, offering: Offering) -> Iterator[None]:
        """Offer a version while it is received."""
        self._received[offering.version] = offering
        try:
            yield
        finally:
            # A prepare that was abandoned may end after the one that replaced it began.
            if self._received.get(offering.version) is offering:
                del self._received[offering.version]

    def find(self, version: str, edition: str) -> Offering:
        """Return an offering; raises SidecarError without one. Blocking."""
        found = self._received.get(version)
        if found is None or found.edition != edition:
            found = self._staged(version)
        if found is None or found.edition != edition:
            raise SidecarError(
                Code.VERSION_NOT_FOUND,
                f"this worker does not share {version} (edition {edition}); ask another worker",
            )
        return found
