"""An example of a route, as docs/reference/http.md shows it and a test plays it."""

from typing import Any, NamedTuple


class Example(NamedTuple):
    """A request, and its answer or the telling part of it."""

    request: str
    """Method and path with query."""
    answer: dict[str, Any] | str
    body: dict[str, Any] | None = None
    status: int = 200
    has_more: bool = False
    """Whether the answer holds more than is shown."""
