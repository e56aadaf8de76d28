"""A directory of entries with a record each, added and removed atomically. Blocking.

An entry is written into a draft and renamed into place, and renamed again before it is
removed. It must stay true that no partial entry is ever found: a sidecar that starts trusts
records and removes everything else.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from rlfleet_sidecar.atomic_file import sync

_RECORD = ".record.json"
_USED = ".used"
Record = TypeVar("Record", bound=BaseModel)


class Entries(Generic[Record]):
    """The entries of one directory, which holds nothing else."""

    def __init__(self, root: Path, record: type[Record], *, lasting: bool = False) -> None:
        self.root = root
        self._record = record
        self._lasting = lasting
        """Whether an entry is synced to the disk before it gets its name."""
        self._drafts: dict[Path, int] = {}
        """The bytes that each draft may grow to."""
        root.mkdir(parents=True, exist_ok=True)

    @property
    def drafted(self) -> int:
        """The bytes that drafts take, or will have taken when they are whole."""
        return sum([*self._drafts.values()])

    def swept(self, is_trusted: Callable[[Path, Record], bool]) -> list[Record]:
        """Remove all but trusted entries; returns their records, last used last."""
        found: dict[Path, Record] = {}
        for entry in sorted(self.root.iterdir()):
            record = self._read(entry)
            if record is not None and is_trusted(entry, record):
                found[entry] = record
            elif entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        return [found[entry] for entry in sorted(found, key=lambda e: self.used_at(e.name) or 0.0)]

    @contextmanager
    def draft(self, nbytes: int) -> Iterator[Path]:
        """Yield a directory for so many bytes; it is removed unless admitted.

        Its bytes count from here on, so a draft must begin before the look for its room.
        """
        draft = self.root / f".draft-{uuid4().hex}"
        # With its parents: freeing space by hand in a pod may have deleted the root too.
        draft.mkdir(parents=True)
        self._drafts[draft] = nbytes
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            del self._drafts[draft]

    def admit(self, draft: Path, name: str, record: Record) -> None:
        """Make a finished draft the entry of this name."""
        (draft / _RECORD).write_text(record.model_dump_json(), encoding="utf-8")
        if self._lasting:
            for path in (*draft.iterdir(), draft):
                sync(path)
        self.drop(name)
        draft.rename(self.root / name)

    def drop(self, name: str) -> None:
        """Remove an entry; open files stay readable."""
        if (self.root / name).is_dir():
            gone = (self.root / name).rename(self.root / f".old-{uuid4().hex}")
            shutil.rmtree(gone, ignore_errors=True)

    def touch(self, name: str) -> None:
        """Record that an entry is in use now."""
        if (self.root / name).is_dir():
            (self.root / name / _USED).touch()

    def used_at(self, name: str) -> float | None:
        """Return when an entry was last in use; None if it never was."""
        try:
            return (self.root / name / _USED).stat().st_mtime
        except FileNotFoundError:
            return None

    def _read(self, entry: Path) -> Record | None:
        try:
            return self._record.model_validate_json((entry / _RECORD).read_bytes())
        except (OSError, ValidationError):
            return None
