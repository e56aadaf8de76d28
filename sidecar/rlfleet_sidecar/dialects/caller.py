"""The trainer's call under way in this task, for reports about it."""

from contextvars import ContextVar
from typing import NamedTuple

from starlette.requests import Request

_SHOWN = 80


class Caller(NamedTuple):
    """A trainer's call, without credentials and query."""

    call: str = "a call"
    """Method and path."""
    client: str = "a trainer"
    """Address and User-Agent."""


CALLER: ContextVar[Caller] = ContextVar("caller", default=Caller())  # noqa: B039 - it is frozen


def caller_of(request: Request) -> Caller:
    """Return a request's call and client."""
    address = request.client.host if request.client else "?"
    agent = "".join(c for c in request.headers.get("user-agent", "") if c.isprintable())[:_SHOWN]
    client = f"{address} ({agent})" if agent else address
    return Caller(f"{request.method} {request.url.path[:_SHOWN]}", client)
