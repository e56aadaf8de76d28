"""Accepts the versions that prime-rl's trainer offers, because it writes none before that.

Its newest trainer makes a version's directory with ``.sender_ready``, waits until
``.receiver_ready`` is there too, writes the weights, and then deletes all but its last two
versions. It must stay true that nothing else is written to the volume, and that an offer of which
only the directory's remains are left counts as gone: the trainer makes it again.
"""

from contextlib import ExitStack
from itertools import islice

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.version_order import number_of
from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.check import FINISHED, STARTED
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.checkpoints.safe_paths import OpenFolder
from rlfleet_sidecar.errors import SidecarError

ACCEPTED = ".receiver_ready"
_MOST_TRIED = 16
"""A trainer offers one version at a time, and keeps three directories."""


class Offers:
    """The offers on a volume. Blocking: a mount may not answer."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    def accept(self) -> tuple[str, ...]:
        """Accept what is offered, and return its versions; raises SidecarError if it cannot."""
        with self._layouts.published.open_root() as root:
            names = root.all_names()
        newest = islice(self._layouts.numbered(names), _MOST_TRIED)
        return tuple(version for _, version in newest if self._is_accepted(version))

    def _is_accepted(self, version: str) -> bool:
        with ExitStack() as opened:
            try:
                folders = opened.enter_context(self._layouts.published.open(version, None))
            except SidecarError:
                # A file, or a directory that the trainer deletes now or has yet to complete.
                return False
            return any(_accept(folder) for folder in folders)


def _accept(folder: OpenFolder) -> bool:
    """Accept the offer in a directory, if there is an open one."""
    is_open = folder.stamp(STARTED) and not folder.stamp(ACCEPTED) and not folder.stamp(FINISHED)
    return bool(is_open) and folder.create(ACCEPTED)


def is_due(taken_up: str | None, newest: Newest | None) -> bool:
    """Return whether the fleet has taken up all that is published, as far as this worker sees.

    Pure. ``taken_up`` is the version that it needs no longer from the volume, None for none.
    """
    if taken_up is None:
        return False
    return newest is None or _place(newest.version) <= _place(taken_up)


def _place(version: str) -> int:
    return -1 if version == BASE_VERSION else number_of(version) or 0
