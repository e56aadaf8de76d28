"""The tables of docs/how-to/troubleshoot.md as rows: what `kubectl rlf explain` reads."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "troubleshoot.md"
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_NAME = re.compile(r"[A-Z][A-Za-z]+")


def as_json() -> str:
    """Return the rows as the plugin reads them."""
    return json.dumps(list(rows(PAGE.read_text())), indent=1) + "\n"


def rows(page: str) -> Iterator[dict[str, object]]:
    """Yield each row of the page's tables whose first cell names a reason, a code or an error."""
    heading: tuple[str, str] | None = None
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            heading = None
        elif heading is None:
            heading = (cells[0], cells[1])
        elif not set(line) <= set("|-"):
            yield from _of_row(cells, *heading)


def _of_row(cells: list[str], of: str, column: str) -> Iterator[dict[str, object]]:
    see = [_page(target) for _, target in _LINK.findall(cells[1])]
    text = _LINK.sub(r"\1", cells[1]).replace("see below", "see the page")
    quoted = re.findall(r"`([A-Z][A-Za-z]+)`", cells[0])
    for name in quoted or ([cells[0]] if _NAME.fullmatch(cells[0]) else []):
        row: dict[str, object] = {"name": name, "of": of, "column": column, "text": text}
        yield row | ({"see": see} if see else {})


def _page(target: str) -> str:
    if target.startswith("../"):
        return "docs/" + target.removeprefix("../")
    return f"docs/how-to/{PAGE.name if target.startswith('#') else ''}{target}"
