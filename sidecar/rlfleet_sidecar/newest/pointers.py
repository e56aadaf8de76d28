"""What a trainer's pointer file says: ``latest``, as deltas read it too, or verl's iteration. Pure.

It must stay true that only a whole, well-formed text names a version: anything else is an error,
and never the base model.
"""

import re
from typing import NamedTuple

from rlfleet_sidecar.deltas.formats import pointer
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError, TornDeltaError

VERL = "latest_checkpointed_iteration.txt"
_VERL = re.compile(r"[0-9]{1,18}")


class Pointed(NamedTuple):
    """What a pointer names."""

    number: int
    run: str
    """Empty if the pointer names none."""
    names: tuple[str, ...]
    """Names that the version may have; the first that exists counts."""


class BadPointerError(ValueError):
    """A pointer whose text names no version."""


def of_latest(data: bytes) -> Pointed:
    """Return what ``latest`` names: a version, or its number."""
    try:
        found = pointer.pointer_of(data)
    except (BadDeltaError, TornDeltaError) as error:
        raise BadPointerError(str(error)) from error
    return Pointed(found.number, found.run, found.names)


def of_verl(data: bytes) -> Pointed:
    """Return the iteration that verl saved last."""
    said = data.decode(errors="replace").strip()
    if _VERL.fullmatch(said) is None:
        raise BadPointerError(f"contains {said[:80]!r}, expected a number; write it again")
    return Pointed(int(said), "", (said, f"global_step_{int(said)}"))
