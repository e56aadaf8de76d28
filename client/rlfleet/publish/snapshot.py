"""The bytes of the last published version, in memory or in a folder, to compare the next with.

They change while the next version is compared. So it must stay true that `state.json` is absent
from the first changed byte until the version is in the store: a trainer that crashes in between
publishes a full version next, never a delta against bytes that it no longer has.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from rlfleet.publish.layout import Entry
from rlfleet.publish.tensors import TensorBytes
from rlfleet.publish.volume import sync, write_whole
from rlfleet_contract.engine.safetensors import BLAKE3

_STATE = "state.json"
_BYTES = "tensors.bin"


@dataclass(frozen=True, slots=True)
class Held:
    """Which version a snapshot holds."""

    version: int
    digest: str
    """Of its index: another digest means that the store's version is another's."""
    last_full: int
    run: str


@dataclass
class Snapshot:
    """Tensors by name; a folder outlives the process."""

    folder: Path | None = None
    held: Held | None = None
    """None while the bytes are no version's."""
    entries: dict[str, Entry] = field(default_factory=dict)
    hashes: dict[str, bytes] = field(default_factory=dict)
    """Of each tensor's bytes, for a version's digest."""
    _begins: dict[str, int] = field(default_factory=dict)
    _arrays: dict[str, TensorBytes] = field(default_factory=dict)
    _end: int = 0

    def __post_init__(self) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._recall(self.folder)

    def open_again(self) -> None:
        """Record that the bytes begin to change."""
        if self.folder is not None:
            # Also without a version: a state that was rejected at the start may fit later bytes.
            (self.folder / _STATE).unlink(missing_ok=True)
            sync(self.folder)
        self.held = None

    def clear(self) -> None:
        """Drop all tensors."""
        self.open_again()
        self.entries.clear()
        self.hashes.clear()
        self._begins.clear()
        self._arrays.clear()
        self._end = 0
        if self.folder is not None:
            (self.folder / _BYTES).write_bytes(b"")

    def add(self, name: str, entry: Entry, data: TensorBytes) -> None:
        """Append a tensor."""
        self.entries[name] = entry
        self.hashes[name] = BLAKE3.new(data.data).digest()
        if self.folder is None:
            self._arrays[name] = data.copy()
            return
        self._begins[name] = self._end
        self._end += entry.nbytes
        with (self.folder / _BYTES).open("ab") as file:
            file.write(data.data)

    def bytes_of(self, name: str) -> TensorBytes:
        """Return the bytes of a tensor; writing to them changes the snapshot."""
        if self.folder is None:
            return self._arrays[name]
        nbytes = self.entries[name].nbytes
        if not nbytes:
            return np.empty(0, np.uint8)
        begin = self._begins[name]
        return np.memmap(self.folder / _BYTES, np.uint8, "r+", begin, (nbytes,))

    def close(self, held: Held) -> None:
        """Record that the bytes are those of a version in the store."""
        if self.folder is not None:
            sync(self.folder / _BYTES)
            tensors = {
                name: [*asdict(entry).values(), self.hashes[name].hex()]
                for name, entry in self.entries.items()
            }
            write_whole(
                self.folder / _STATE, json.dumps({**asdict(held), "tensors": tensors}).encode()
            )
        self.held = held

    def _recall(self, folder: Path) -> None:
        try:
            found = json.loads((folder / _STATE).read_bytes())
            tensors = found.pop("tensors")
            entries = {
                name: Entry(dtype, tuple(shape)) for name, (dtype, shape, _) in tensors.items()
            }
            hashes = {name: bytes.fromhex(hashed) for name, (_, _, hashed) in tensors.items()}
            held = Held(**found)
            size = (folder / _BYTES).stat().st_size
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return
        begins = _begins_of(entries)
        end = sum(entry.nbytes for entry in entries.values())
        if size == end:
            self.held, self.entries, self.hashes = held, entries, hashes
            self._begins, self._end = begins, end


def _begins_of(entries: Mapping[str, Entry]) -> dict[str, int]:
    begins, end = {}, 0
    for name, entry in entries.items():
        begins[name] = end
        end += entry.nbytes
    return begins
