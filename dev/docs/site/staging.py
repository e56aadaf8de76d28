"""A page as the generator takes it: the same Markdown, with links that a site can follow. Pure.

Pages are written for people who read them in the repository. There a link may name a folder.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_DIAGRAM = "```mermaid"
"""Shown as its text: a script that draws it would come from another host."""


def resolved(page: str, target: str) -> str | None:
    """Return the path in the repository that a link leads to; None if it leads elsewhere."""
    path = target.partition("#")[0]
    if not path or "://" in target or target.startswith("mailto:"):
        return None
    parts: list[str] = []
    for part in (PurePosixPath(page).parent / path).parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts) or "."


def staged(
    page: str, text: str, is_folder: Callable[[str], bool], has: Callable[[str], bool]
) -> str:
    """Return the page's text; a folder's link leads to its README, or is plain text without one."""

    def changed(found: re.Match[str]) -> str:
        _, shown, target = found.groups()
        path = resolved(page, target)
        if path is None or not is_folder(path):
            return found.group()
        readme = f"{path}/README.md" if path != "." else "README.md"
        if not has(readme):
            return str(shown)
        return f"[{shown}]({target.rstrip('/')}/README.md)"

    lines = text.replace(_DIAGRAM, "```text").splitlines()
    return "\n".join(_LINK.sub(changed, line) for line in lines) + "\n"


def targets(page: str, text: str) -> Iterator[str]:
    """Yield the paths in the repository that a page links to."""
    for _, _, target in _LINK.findall(text):
        path = resolved(page, target)
        if path is not None:
            yield path
