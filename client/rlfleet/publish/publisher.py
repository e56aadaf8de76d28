"""Publishes one version after another: full, or what changed since the last.

It must stay true that a number names one set of bytes for ever, and that a delta's base is the
version before it, as it lies in the store.
"""

from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rlfleet.publish import bucket, layout, writing
from rlfleet.publish.encode import Changes
from rlfleet.publish.errors import PublishError
from rlfleet.publish.layout import DeltaHeader
from rlfleet.publish.options import Options
from rlfleet.publish.snapshot import Held, Snapshot
from rlfleet.publish.store import Draft, PublishingStore
from rlfleet.publish.tensors import Item, TrainerTensors, items
from rlfleet.publish.volume import VolumeStore


@dataclass(frozen=True, slots=True)
class Publication:
    """One published version."""

    name: str
    version: int
    is_full: bool
    nbytes: int
    """So much was written."""
    total_nbytes: int
    """So large the model's tensors are."""


class Publisher:
    """Publishes to one place; not for two threads at once."""

    def __init__(self, target: Any, options: Options | None = None) -> None:
        """Open a directory, an URL such as s3://bucket/run-1, or a store of obstore's."""
        self._options = options or Options()
        self._store = _opened(target, self._options)
        folder = self._options.snapshot
        self._snapshot = Snapshot(Path(folder) if folder else None)

    def __enter__(self) -> Self:
        """Return the publisher, which is closed at the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process publish here."""
        self._store.close()

    def publish(self, source: TrainerTensors, *, full: bool = False) -> Publication:
        """Publish all tensors of a model, or a directory that holds them.

        After a failure no version is there, and the next one is full. Only if the pointer could
        not be moved, the version is there, and the next one may be its delta.
        """
        numbers = self._store.numbers()
        if self._options.base is not None and self._snapshot.held is None and not numbers:
            self._begin_at(self._options.base)
        held = self._snapshot.held
        number = max([0, *numbers, *([held.version] if held else [])]) + 1
        base = None if full else self._base_for(number)
        self._snapshot.open_again()
        with self._store.draft(number) as draft:
            if base is None:
                return self._replace(draft, number, source)
            return self._change(draft, number, source, base)

    def _begin_at(self, base: Path | str) -> None:
        """Take the base model as version 0; its bytes are in no store, so no state is kept."""
        self._snapshot.clear()
        for item in items(base):
            self._snapshot.add(item.name, item.entry, item.data)
        self._snapshot.held = Held(version=0, digest="", last_full=0, run=self._options.run)

    def _base_for(self, number: int) -> Held | None:
        """Return the version before, if the snapshot has its bytes and no anchor is due."""
        held = self._snapshot.held
        every = self._options.anchor_every
        if held is None or (held.version, held.run) != (number - 1, self._options.run):
            return None
        if every and number - held.last_full >= every:
            return None
        return held if held.version == 0 or self._is_in_store(held) else None

    def _is_in_store(self, held: Held) -> bool:
        index = self._store.index_of(held.version)
        return index is not None and _digest(index) == held.digest

    def _replace(self, draft: Draft, number: int, source: TrainerTensors) -> Publication:
        """Publish a full version of new tensors."""
        self._snapshot.clear()
        for item in items(source):
            if item.name in self._snapshot.entries:
                raise _twice(item.name)
            self._snapshot.add(item.name, item.entry, item.data)
        return self._full(draft, number, source)

    def _full(self, draft: Draft, number: int, source: TrainerTensors) -> Publication:
        """Publish a full version of what the snapshot has."""
        if not self._snapshot.entries:
            raise PublishError("the source has no tensor; pass the model's state dict")
        options = self._options
        own = source if isinstance(source, str | Path) else options.base
        writing.copy(draft, options.files or own)
        files = writing.tensors(draft, self._snapshot, options.shard_nbytes)
        total = self._total()
        index = layout.index(number, files, total, None, self._digest())
        if options.marker:
            # Before the index, which is what makes the version complete.
            draft.write(options.marker, iter([b""]))
        return self._commit(draft, number, index, Written(total, number))

    def _change(self, draft: Draft, number: int, source: TrainerTensors, base: Held) -> Publication:
        """Publish what changed; the whole, where the encoding cannot say it."""
        options = self._options
        folder = str(options.snapshot) if options.snapshot else None
        with closing(
            Changes(options.encodings(), options.checksum, folder, options.threads)
        ) as changes:
            self._compare(source, changes)
            self._snapshot.hashes.update(changes.hashes)
            best = changes.best()
            if best is None:
                return self._full(draft, number, source)
            encoding, payloads = best
            files = writing.payloads(draft, payloads, changes.checksums, options.shard_nbytes)
            delta = DeltaHeader(base.version, encoding, options.checksum)
            index = layout.index(number, files, 0, delta, self._digest())
            return self._commit(draft, number, index, Written(payloads.total, base.last_full))

    def _compare(self, source: TrainerTensors, changes: Changes) -> None:
        snapshot, seen = self._snapshot, set[str]()
        for item in items(source):
            if item.name in seen:
                raise _twice(item.name)
            seen.add(item.name)
            self._demand_alike(item)
            changes.add(item.name, snapshot.bytes_of(item.name), item.data)
        if missing := sorted(snapshot.entries.keys() - seen):
            raise PublishError(
                f"tensor {missing[0]} is missing; pass all tensors, or publish with full=True"
            )

    def _demand_alike(self, item: Item) -> None:
        before = self._snapshot.entries.get(item.name)
        if before is None:
            # A tied model's state dict has its embedding twice, and its checkpoint once.
            raise PublishError(
                f"tensor {item.name} is not in the last version; leave it out if another tensor is"
                " tied to it, else publish with full=True"
            )
        if before != item.entry:
            raise PublishError(
                f"tensor {item.name} is {item.entry.dtype} {list(item.entry.shape)} (expected"
                f" {before.dtype} {list(before.shape)} by the last version); publish with full=True"
            )

    def _commit(self, draft: Draft, number: int, index: bytes, written: "Written") -> Publication:
        draft.commit(layout.INDEX, index)
        run = self._options.run
        self._snapshot.close(Held(number, _digest(index), written.last_full, run))
        if run:
            self._store.point(run, number)
        is_full = written.last_full == number
        return Publication(
            layout.name_of(number), number, is_full, written.nbytes + len(index), self._total()
        )

    def _digest(self) -> str:
        return layout.digest(self._snapshot.entries, self._snapshot.hashes)

    def _total(self) -> int:
        return sum(entry.nbytes for entry in self._snapshot.entries.values())


@dataclass(frozen=True, slots=True)
class Written:
    """What was put next to the index."""

    nbytes: int
    last_full: int


def _opened(target: Any, options: Options) -> PublishingStore:
    pointed = bool(options.run)
    if isinstance(target, Path) or (isinstance(target, str) and "://" not in target):
        return VolumeStore(Path(target), pointed=pointed)
    return bucket.opened(target, options.store, pointed=pointed)


def _digest(index: bytes) -> str:
    return sha256(index).hexdigest()


def _twice(name: str) -> PublishError:
    return PublishError(f"tensor {name} comes twice; pass each once")
