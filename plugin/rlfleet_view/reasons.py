"""What a reason or a problem code means and what to do.

The texts are those of docs/how-to/troubleshoot.md: `make generate` writes reasons.json from it.
"""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasonEntry:
    """One row of a table of that page."""

    name: str
    of: str
    """Heading of its column: a condition, or `code`."""
    column: str
    """What the text is: `do`, `meaning` or `wait while`."""
    text: str
    see: tuple[str, ...] = ()
    """Pages that the text refers to."""


Reasons = dict[str, list[ReasonEntry]]


def parsed(text: str) -> Reasons:
    """Return the entries of reasons.json by name."""
    found: Reasons = {}
    for row in json.loads(text):
        entry = ReasonEntry(**{**row, "see": tuple(row.get("see", ()))})
        found.setdefault(entry.name, []).append(entry)
    return found


def actions(known: Reasons, reason: str) -> list[str]:
    """Return what to do about a reason; empty if the table has no such reason."""
    return [entry.text for entry in known.get(reason, ()) if entry.column == "do"]
