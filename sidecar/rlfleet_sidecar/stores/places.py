"""Opens the versions of a store: what Layout of checkpoints/safe_paths.py is for a volume."""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rlfleet_contract.engine.safetensors import BadHeaderError
from rlfleet_contract.paths import MANIFEST_FILE
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.stores import removal
from rlfleet_sidecar.stores.client import Opened, StoreClient
from rlfleet_sidecar.stores.objects import ObjectEntry, StoreFolder
from rlfleet_sidecar.stores.root import SmallObjects, StoreRoot
from rlfleet_sidecar.stores.url import StoreLayout

_INDEX = "model.safetensors.index.json"
_USUAL = ("config.json", "model.safetensors", _INDEX, MANIFEST_FILE, ".sender_ready")
_ADAPTER = ("lora_adapter", "adapter_config.json")
"""What verl's model_merger writes below a version, for which the check looks."""
_MAX_INDEX_BYTES = 64 * 1024 * 1024
_MAX_SHARDS = 10_000


class StorePlaces:
    """The versions of one store. Blocking: use a thread."""

    def __init__(self, settings: SidecarSettings, template: str) -> None:
        self.layout = StoreLayout.of(template)
        self._settings = settings
        self._client: StoreClient | None = None
        self._small = SmallObjects()

    @contextmanager
    def open_root(self, *, above: bool = False) -> Iterator[StoreRoot]:
        """Open the root, or the place that holds it."""
        root = self.layout.root
        yield StoreRoot(self._opened(), root.parent if above else root, self._small)

    @contextmanager
    def open(self, version: str) -> Iterator[tuple[StoreFolder, ...]]:
        """Open a version's places from the outermost to the one with the weights."""
        opened = self._opened()
        *outer, inner = self.layout.places_of(version)
        folders = [StoreFolder(opened, place, is_listed=False) for place in outer]
        if inner.is_http:
            folders.append(HttpFolder(opened, inner, markers=self._settings.markers))
        else:
            folders.append(StoreFolder(opened, inner))
        if not folders[-1].entries():
            raise SidecarError(
                Code.VERSION_NOT_FOUND,
                f"{inner} has no objects; write the version, or correct weights.source",
            )
        yield tuple(folders)

    def remove(self, version: str, steps: Sequence[Collection[str]]) -> None:
        """Delete a version; see removal.py."""
        removal.remove(self._opened(), self.layout.places_of(version)[0], steps)

    def _opened(self) -> Opened:
        # Not at start-up: without obstore in the image the sidecar must still answer.
        self._client = self._client or StoreClient(self._settings, self.layout.root)
        return self._client.open()


@dataclass(slots=True)
class HttpFolder(StoreFolder):
    """A version on a plain HTTP server, which lists nothing: its objects have known names."""

    markers: Sequence[str] = ()

    def _listed(self) -> dict[str, ObjectEntry]:
        found = self._known({*_USUAL, *self.markers})
        name, config = _ADAPTER
        if StoreFolder(self.opened, self.path / name, is_listed=False).described(config):
            self._folders.add(name)
        if _INDEX in found:
            self._entries = found
            found |= self._known(self._shards() - found.keys())
        return found

    def _known(self, names: set[str]) -> dict[str, ObjectEntry]:
        entries = {name: self.described(name) for name in sorted(names)}
        return {name: entry for name, entry in entries.items() if entry is not None}

    def _shards(self) -> set[str]:
        """Return the files of the index; none if it is damaged, which the check reports."""
        index = self.object_of(_INDEX)
        if index.stamp.size > _MAX_INDEX_BYTES:
            return set()
        try:
            shards = json.loads(index.read(index.stamp.size, 0))["weight_map"].values()
        except (BadHeaderError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return set()
        found = {name for name in shards if isinstance(name, str) and _is_name(name)}
        return found if len(found) <= _MAX_SHARDS else set()


def _is_name(text: str) -> bool:
    return "/" not in text and text not in {"", ".", ".."}
