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

    @property
    def route(self) -> str:
        """Method and path."""
        return self.request.partition("?")[0]


def agrees(example: Example, status: int, text: str, reply: Any) -> bool:
    """Tell whether a reply, as text and as what its JSON says, is what the example shows."""
    if status != example.status:
        return False
    if isinstance(example.answer, str):
        return example.answer in text
    if example.has_more:
        return isinstance(reply, dict) and reply | example.answer == reply
    return bool(reply == example.answer)
