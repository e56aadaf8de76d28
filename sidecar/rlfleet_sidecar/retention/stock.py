"""What a store holds: its versions, when they were written, and which of them are whole.

Some versions that the rules name never become deletable: folders without the weights' directory,
those of a later run, what a console leaves of a deleted folder. It must stay true that they hide
no others, however many there are, and that a look costs a bounded number of listings.
"""

import functools
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack

from rlfleet_contract.version_order import number_of
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.deltas.formats.pointer import UPDATES
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest.completeness import is_whole
from rlfleet_sidecar.newest.pointers import Pointed
from rlfleet_sidecar.newest.search import pointed_in
from rlfleet_sidecar.retention import rules
from rlfleet_sidecar.settings import SidecarSettings

MOST_SHOWN = 16
"""Versions that one look returns."""
MOST_COMPARED = 64
"""Versions whose times are compared in one look: each costs a listing."""
_AGAIN = 16
"""Of these so many were passed over before: they may be older than what is needed by now."""


class Stock:
    """The published versions. Blocking: use a thread. Raises SidecarError."""

    def __init__(self, settings: SidecarSettings, layouts: Layouts) -> None:
        self._markers = settings.markers
        self._reader_uid = settings.engine_uid
        self._layouts = layouts
        self._passed: list[str] = []
        """Versions without files or later than what is needed, the longest not compared first."""

    def unneeded(self, needed: Collection[str], keep: int) -> tuple[tuple[str, ...], int]:
        """Return the oldest versions that are not needed, and the number of all.

        A version that was written after a needed one is of a later run, which uses the numbers
        again; so is one that the trainer's pointer has not reached. None of them counts.
        """
        stored, pointed = self._stored()
        wanted = {*needed, *(pointed.names if pointed is not None else ())}
        found = rules.unneeded(stored, wanted, keep, self._is_whole)
        if pointed is not None:
            found = tuple(one for one in found if (number_of(one) or 0) < pointed.number)
        present = [version for version in needed if version in stored]
        return self._oldest(found, present), len(found) - len(self._passed)

    def _oldest(self, found: Sequence[str], needed: Sequence[str]) -> tuple[str, ...]:
        """Return the oldest that were written before a needed one, of those compared in this look.

        Versions that were passed over are compared last, and each look continues with others.
        """
        written = functools.cache(self._written_ns)
        known, seen = set(found), set(self._passed)
        passed = [version for version in self._passed if version in known]
        again, rest = passed[:_AGAIN], passed[_AGAIN:]
        new = [version for version in found if version not in seen]
        oldest: list[str] = []
        for version in (*again, *new[: MOST_COMPARED - len(again)]):
            if len(oldest) == MOST_SHOWN:
                break
            is_before = _is_before(version, needed, written)
            (oldest if is_before else rest).append(version)
        self._passed = rest
        return tuple(version for version in found if version in oldest)

    def _stored(self) -> tuple[Collection[str], Pointed | None]:
        """Return all versions, and the pointer to the newest."""
        with ExitStack() as opened:
            root = opened.enter_context(self._layouts.open_root())
            pointed = None
            if self._layouts.root_name == UPDATES:
                pointed = pointed_in(opened.enter_context(self._layouts.open_root(above=True)))
            names = root.all_names()
            return {one for _, one in self._layouts.numbered(names)}, pointed or pointed_in(root)

    def _is_whole(self, version: str) -> bool:
        try:
            with self._layouts.open(version, self._reader_uid) as folders:
                return is_whole(folders, version, self._markers)
        except SidecarError as error:
            if error.code is Code.CHECKPOINT_UNREADABLE:
                raise
            return False

    def _written_ns(self, version: str) -> int | None:
        """Return when a version's newest file was written; None if it has none."""
        try:
            with self._layouts.open(version, self._reader_uid) as folders:
                return max((stamp.mtime_ns for stamp in folders[-1].stamps()), default=None)
        except SidecarError as error:
            if error.code is Code.CHECKPOINT_UNREADABLE:
                raise
            return None


def _is_before(
    version: str, needed: Sequence[str], written_ns: Callable[[str], int | None]
) -> bool:
    """Return whether a version was written before the needed one that follows it."""
    follower = rules.next_above(version, needed)
    if follower is None:
        return False
    one, other = written_ns(version), written_ns(follower)
    return one is not None and other is not None and one <= other
