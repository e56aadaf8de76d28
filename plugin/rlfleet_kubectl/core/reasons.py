"""What `explain` prints about a reason or a problem code."""

import difflib

from rlfleet_kubectl.errors import PluginError
from rlfleet_view.reasons import ReasonEntry, Reasons


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
