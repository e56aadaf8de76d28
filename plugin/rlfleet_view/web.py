"""What both servers of the page have in common: its files, its headers, its events.

The policy forbids everything but the page's own files, and strings as HTML: a name or message
of a fleet can load nothing, run nothing, and reach no other host.
"""

import json
from importlib import resources
from typing import NamedTuple

from rlfleet_view import reasons
from rlfleet_view.fleet import RawObject
from rlfleet_view.reasons import Reasons

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer: a fleet's state is for no cache, no frame and no other site."""
EVENTS = "events"
LOAD = "load"
HEARTBEAT = b": heartbeat\n\n"
HEARTBEAT_S = 15.0
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_INDEX = "index.html"
NAMES = frozenset(
    {_INDEX, "page.css", "icon.svg", "main.js", "dom.js", "fleet.js", "charts.js", "changes.js"}
)


class PageFile(NamedTuple):
    """One file of the page."""

    type: str
    content: bytes


def page_file(name: str) -> PageFile | None:
    """Return a file of the page, index.html without a name; None if there is no such file."""
    name = name or _INDEX
    if name not in NAMES:
        return None
    content = resources.files("rlfleet_view").joinpath("files", name).read_bytes()
    return PageFile(_TYPES[name.rpartition(".")[2]], content)


def known_reasons() -> Reasons:
    """Return the table that `make generate` wrote."""
    return reasons.parsed(resources.files("rlfleet_view").joinpath("reasons.json").read_text())


def event(kind: str, data: RawObject) -> bytes:
    """Return a server-sent event; JSON has no line break of its own."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
