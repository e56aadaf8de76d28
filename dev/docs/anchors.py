"""The anchors of a Markdown page's headings, as GitHub and the site make them. Pure."""

import re
from collections import Counter

_FENCE = re.compile(r"^(```|~~~)")
_HEADING = re.compile(r"^#{1,6} (.*?)#*\s*$")
_LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_NO_WORD = re.compile(r"[^\w\- ]")


def anchors(text: str) -> set[str]:
    """Return the anchors of all headings outside of code blocks."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    is_code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        heading = None if is_code else _HEADING.match(line)
        if heading is not None:
            name = slug(heading[1])
            # The second of one name is name-1.
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return found


def slug(heading: str) -> str:
    """Return a heading's anchor: lower case, no punctuation, a hyphen for each space."""
    words = _LINKED.sub(r"\1", heading).replace("`", "").strip().lower()
    return _NO_WORD.sub("", words).replace(" ", "-")
