"""What a reason or a problem code means and what to do.

The texts are those of docs/how-to/troubleshoot.md: `make generate` writes reasons.json from it.
"""

import difflib
import json
from dataclasses import dataclass

from rlfleet_kubectl.errors import PluginError


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


def explained(known: Reasons, name: str) -> list[str]:
    """Return the lines that explain a reason; raises PluginError if there is no such reason."""
    exact = {one.lower(): one for one in known}
    found = exact.get(name.lower())
    if found is None:
        close = difflib.get_close_matches(name.lower(), exact, n=3)
        near = f"; did you mean {', '.join(exact[one] for one in close)}?" if close else ""
        raise PluginError(f"no reason or code {name}{near}\nlist all: kubectl rlf explain")
    return [line for entry in known[found] for line in _lines(entry)]


def _lines(entry: ReasonEntry) -> list[str]:
    said = {"do": "do: ", "wait while": "wait while "}.get(entry.column, "")
    return [
        f"{entry.name} ({entry.of})",
        f"  {said}{entry.text}",
        *(f"  see {page}" for page in entry.see),
    ]
