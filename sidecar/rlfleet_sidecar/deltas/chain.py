"""From which version a delta is built, and over which deltas.

The chain goes down from the target to the first version that is whole: a copy in this worker's
cache, a full version, or the base model as number 0. It must stay true that a copy counts only
while the directory that it came from still has the same files: numbers are used again. And that
deltas of two runs in one directory are not joined, nor to a copy of the other one's: a publisher's
checksums show it where two deltas change the same tensor, their times where they do not.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.deltas.formats.names import Series
from rlfleet_sidecar.deltas.published import Published
from rlfleet_sidecar.errors import SidecarError

FIRST = 0
"""The number of the base model: publishers compare version 1 with it."""


@dataclass(frozen=True, slots=True)
class Link:
    """One delta of a chain."""

    version: str
    number: int
    identity: str
    files: tuple[FileStamp, ...]
    digest: str | None = None
    """Of all tensors of the version, if its publisher wrote it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A whole version, and the deltas that lead from it to the target."""

    start: str
    """The name of a version, or ``base``."""
    links: tuple[Link, ...]
    """In the order in which they apply; the last one is the target."""

    @property
    def nbytes(self) -> int:
        """Bytes of all deltas."""
        return sum(stamp.size for link in self.links for stamp in link.files)


def chain_to(
    series: Series,
    number: int,
    is_staged: Callable[[str], bool],
    look: Callable[[int], Published | None],
) -> Chain:
    """Return the chain to a delta.

    Args:
        series: Its series.
        number: Its number.
        is_staged: Whether the worker has a copy of exactly this published version.
        look: Returns what a version's directory contains; None if there is none.

    """
    links: list[Link] = []
    above: Published | None = None
    while True:
        version = series.name(number)
        is_copied = bool(links) and is_staged(version)
        found = look(number)
        if found is None:
            if number == FIRST:
                return Chain(BASE_VERSION, tuple(reversed(links)))
            raise _missing(version, series.name(number + 1) if links else None)
        if above is not None and not links[0].digest:
            _demand_one_run(found, above, version, series.name(number + 1))
        if is_copied or found.delta is None:
            return Chain(version, tuple(reversed(links)))
        links.append(Link(version, number, found.identity, found.files, found.digest))
        above = found
        number = found.delta.parent


def _demand_one_run(below: Published, above: Published, version: str, newer: str) -> None:
    """Raise if a delta is older than the one that it follows, and no checksum joins them."""
    if below.delta is None or above.delta is None or not below.files or not above.files:
        return
    is_compared = not below.delta.fragments.keys().isdisjoint(above.delta.fragments)
    # The file that completes a version is the first of them.
    if is_compared or below.files[0].mtime_ns <= above.files[0].mtime_ns:
        return
    raise SidecarError(
        Code.CHECKPOINT_INVALID,
        f"{newer} is older than {version}, which it follows, and changes other tensors: they may be"
        " of two runs; give each run a directory of its own",
    )


def _missing(version: str, newer: str | None) -> SidecarError:
    if newer is None:
        return SidecarError(Code.VERSION_NOT_FOUND, f"{version} does not exist; publish it")
    return SidecarError(
        Code.CHECKPOINT_INCOMPLETE,
        f"{version} does not exist, of which {newer} is a delta; publish it again, or a full"
        f" version from {newer} on",
    )
