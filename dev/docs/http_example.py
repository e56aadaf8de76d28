"""An example of a route, which docs/reference/http.md shows and a test executes."""

from typing import Any, NamedTuple


class Example(NamedTuple):
    """A request, and its reply or a part of that."""

    request: str
    """Method and path with query."""
    answer: dict[str, Any] | str
    body: dict[str, Any] | None = None
    status: int = 200
    has_more: bool = False
    """Whether the reply has more fields than the example."""

    @property
    def route(self) -> str:
        """Method and path."""
        return self.request.partition("?")[0]


def agrees(example: Example, status: int, text: str, reply: Any) -> bool:
    """Return whether a reply, as text and as parsed JSON, is that of the example."""
    if status != example.status:
        return False
    if isinstance(example.answer, str):
        return example.answer in text
    if example.has_more:
        return isinstance(reply, dict) and reply | example.answer == reply
    return bool(reply == example.answer)
