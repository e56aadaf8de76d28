"""The pointer ``latest``, in which a trainer names its newest version: Stitch's, DeepSpeed's. Pure.

It must stay true that only a whole, well-formed text names a version: anything else is an error,
and never the base model.
"""

import re
from dataclasses import dataclass

from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, TornDeltaError
from rlfleet_sidecar.deltas.formats.names import WEIGHTS

LATEST = "latest"
UPDATES = "updates"
"""Stitch's versions lie in this folder, next to the pointer."""
MAX_BYTES = 512
_MAX_RUN = 128
_TEXT = re.compile(
    r"(?:(?P<run>[A-Za-z0-9][^/\s]*(?:/[A-Za-z0-9][^/\s]*)*)/)?"
    r"(?P<prefix>[A-Za-z0-9][A-Za-z0-9._-]{0,108}?(?<![0-9]))??(?P<digits>[0-9]{1,18})"
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The newest version of a trainer, and the run that published it."""

    run: str
    """Empty if the pointer names none."""
    prefix: str
    """What the version's name begins with; empty if the pointer holds a number alone."""
    digits: str

    @property
    def number(self) -> int:
        """The version's number."""
        return int(self.digits)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the version may have; the first that exists counts."""
        if self.prefix not in {"", WEIGHTS.prefix}:
            return (f"{self.prefix}{self.digits}",)
        # The second, where weights.path has weight_v{version}.
        return (WEIGHTS.name(self.number), f"{self.number:0{WEIGHTS.digits}d}")

    def demand_published(self, number: int) -> None:
        """Raise if a weight_vNNNNNN is newer than the pointer: its files may be incomplete."""
        if self.prefix not in {"", WEIGHTS.prefix}:
            raise _bad(self.names[0])
        if number > self.number:
            raise TornDeltaError(
                f"names {WEIGHTS.name(self.number)}, older than {WEIGHTS.name(number)}; wait"
                " until its publisher moves it"
            )


def pointer_of(data: bytes) -> Pointer:
    """Parse the file; raises TornDeltaError if it is empty or cut, BadDeltaError if no pointer."""
    text = data.decode("utf-8-sig", errors="replace").strip()
    if not text:
        raise TornDeltaError("is empty, expected RUN/weight_vNNNNNN; wait for the first version")
    found = _TEXT.fullmatch(text)
    run = "" if found is None else found["run"] or ""
    if found is None or len(run) > _MAX_RUN:
        raise _bad(text)
    prefix, digits = found["prefix"] or "", found["digits"]
    if prefix == WEIGHTS.prefix and len(digits) < WEIGHTS.digits:
        raise TornDeltaError(
            f"contains {text[:80]!r}, expected {WEIGHTS.digits} digits; wait until its publisher"
            " has written all of it"
        )
    return Pointer(run, prefix, digits)


def _bad(text: str) -> BadDeltaError:
    return BadDeltaError(
        f"contains {text[:80]!r}, expected RUN/weight_vNNNNNN; let its publisher write it again"
    )
