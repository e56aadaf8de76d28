"""Where a version's files come from: what the one pass expects of a volume, a store, a delta.

It must stay true that a byte that was reported is never written again: what is digested is
what the engine loads.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from rlfleet_sidecar.checkpoints.folder import Location

Done = Callable[[str, int, int], None]
"""Called with a file's name, and begin and end of bytes of it that can be read now."""


class VersionSource(Protocol):
    """Makes the files of one version in a private directory."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Each file that it makes, with its bytes."""
        ...

    def where(self, name: str) -> Location:
        """Return a file's path or address, for messages."""
        ...

    def fill(self, draft: Path, done: Done) -> None:
        """Write every file into the draft; returns when all is written. Blocking.

        Each byte is reported once, in any order, from any thread of the source, when the
        file has its full size. ``done`` waits while a change has the disk for itself or too
        much is not yet digested. It raises once the pass is over: superseded, out of time, or
        rejected. Then the source must end too. It must not return while a thread of it runs.
        """
        ...
