"""What holds the versions in a store: their names, and the pointer next to them.

A look is repeated every few seconds, so what did not change must cost little: a pointer is read
again only if its ETag is another, and names are listed without the objects below them.
"""

from dataclasses import dataclass, field
from typing import Any

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.stores.client import Opened
from rlfleet_sidecar.stores.failures import named
from rlfleet_sidecar.stores.objects import repeated
from rlfleet_sidecar.stores.url import StoreUrl


class SmallObjects:
    """Objects that were read whole, by their ETag."""

    def __init__(self) -> None:
        self._known: dict[StoreUrl, tuple[str, bytes]] = {}

    def read(self, opened: Opened, place: StoreUrl, most: int) -> bytes | None:
        """Return so many bytes of an object at most; None if it does not exist."""
        tag, data = self._known.get(place, ("", b""))
        options = {"if_none_match": tag} if tag else {}
        library = opened.library
        with named(place):
            try:
                found = library.get(opened.store, place.key, options=options)
                data = _beginning(found, most)
            except library.exceptions.NotModifiedError:
                return data
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None
            if tag := found.meta["e_tag"]:
                self._known[place] = (tag, data)
        return data


@dataclass(frozen=True, slots=True)
class StoreRoot:
    """A place in a store with versions below it."""

    opened: Opened
    path: StoreUrl
    small: SmallObjects = field(default_factory=SmallObjects)

    def all_names(self) -> list[str]:
        """Return the sorted names of what has objects below it: one request for a thousand."""
        if self.path.is_http:
            raise SidecarError(
                Code.CHECKPOINT_UNREADABLE,
                f"{self.path} has no pointer, and an HTTP server lists nothing; let the trainer"
                f" write {self.path / 'latest'}, or use an s3:// or gs:// URL in weights.source",
            )
        return repeated(self._listed)

    def text(self, name: str, most: int) -> bytes | None:
        """Return so many bytes of an object at most; None if it does not exist."""
        return self.small.read(self.opened, self.path / name, most)

    def _listed(self) -> list[str]:
        prefix = f"{self.path.key}/" if self.path.parts else None
        with named(self.path):
            found = self.opened.library.list_with_delimiter(self.opened.store, prefix=prefix)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])


def _beginning(found: Any, most: int) -> bytes:
    data = b""
    for piece in found.stream(min_chunk_size=most):
        data += bytes(piece)
        if len(data) >= most:
            break
    return data[:most]
