"""Finds what the application was made of, for its routes."""

from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


def name_of(kind: type) -> str:
    """Return the name under which the application keeps its part of this kind."""
    return kind.__name__.lower()


def part_of(request: Request, kind: type[T]) -> T:
    """Return the one part of this kind; raises TypeError if the application has none."""
    part = getattr(request.app.state, name_of(kind), None)
    if not isinstance(part, kind):
        raise TypeError(f"the application has no {kind.__name__}")
    return part
