"""Looks for the newest complete version: by its trainer's pointer, else by names.

A pointer has precedence, because only its trainer knows which versions it withdrew. It must stay
true that a broken pointer hides all versions instead of naming another one.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import islice

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.folder import Root
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.deltas.chain import FIRST
from rlfleet_sidecar.deltas.formats.names import WEIGHTS
from rlfleet_sidecar.deltas.formats.pointer import LATEST, MAX_BYTES, UPDATES
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest import pointers
from rlfleet_sidecar.newest.completeness import is_complete
from rlfleet_sidecar.newest.pointers import BadPointerError, Pointed
from rlfleet_sidecar.stores.failures import StoreFailedError

_POINTERS = {LATEST: pointers.of_latest, pointers.VERL: pointers.of_verl}
_MOST_TRIED = 16
"""Newer directories than the newest complete one: of trainers that died, or write them now."""


class BrokenPointerError(SidecarError):
    """A pointer names no version, so that none is the newest."""


class Search:
    """Finds published versions. Blocking: a mount may not answer."""

    def __init__(self, layouts: Layouts, markers: Sequence[str], reader_uid: int | None) -> None:
        self._layouts = layouts
        self._markers = markers
        self._reader_uid = reader_uid

    def newest(self, known: Newest | None, now: float) -> Newest | None:
        """Return the newest version; the known one again while it is that. Raises SidecarError."""
        with ExitStack() as opened:
            root = opened.enter_context(self._layouts.open_root())
            pointed = None
            if self._layouts.root_name == UPDATES:
                pointed = pointed_in(opened.enter_context(self._layouts.open_root(above=True)))
            pointed = pointed or pointed_in(root)
            if pointed is not None:
                return self._at(pointed, known, now)
            # Deltas of a long run are many, because those that come later need them all.
            return self._listed(root.all_names(), known, now)

    def _at(self, pointed: Pointed, known: Newest | None, now: float) -> Newest | None:
        """Return the version that a pointer names, once its directory is there."""
        for version in pointed.names:
            if known is not None and (known.version, known.run) == (version, pointed.run):
                return known
            try:
                with self._layouts.open(version, self._reader_uid):
                    return Newest(version=version, run=pointed.run, found_at=now)
            except SidecarError as error:
                if error.code is Code.CHECKPOINT_UNREADABLE:
                    raise
        if WEIGHTS.name(FIRST) not in pointed.names:
            return None
        # Stitch's new run has no version yet: engines must have the model that they boot with.
        is_known = known is not None and (known.version, known.run) == (BASE_VERSION, pointed.run)
        return known if is_known else Newest(version=BASE_VERSION, run=pointed.run, found_at=now)

    def _listed(self, names: Iterable[str], known: Newest | None, now: float) -> Newest | None:
        for _, version in islice(self._layouts.numbered(names), _MOST_TRIED):
            if known is not None and (known.version, known.run) == (version, ""):
                return known
            try:
                with self._layouts.open(version, self._reader_uid) as folders:
                    if is_complete(folders, version, self._markers):
                        return Newest(version=version, found_at=now)
            except StoreFailedError:
                raise
            except (SidecarError, ValueError, RecursionError, OSError):
                # A file that is being written, is not readable, or is no version's directory.
                continue
        return None


def pointed_in(root: Root) -> Pointed | None:
    """Return what the pointer there names; None without one. Raises SidecarError."""
    for name, read in _POINTERS.items():
        text = root.text(name, MAX_BYTES)
        try:
            if text is not None:
                return read(text)
        except BadPointerError as error:
            why = f"{root.path / name} {error}"
            raise BrokenPointerError(Code.CHECKPOINT_INVALID, why) from error
    return None
