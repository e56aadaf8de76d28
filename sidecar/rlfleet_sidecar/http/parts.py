"""Finds what the application was made of, for its routes."""

from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


def part_of(request: Request, kind: type[T]) -> T:
    """Return the one part of this kind; it is kept under its name in lower case."""
    part = getattr(request.app.state, kind.__name__.lower(), None)
    if not isinstance(part, kind):
        raise TypeError(f"the application has no {kind.__name__}")
    return part
