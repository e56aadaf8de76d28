"""Gives routes access to the objects that the application consists of."""

from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


def name_of(kind: type) -> str:
    """Return the attribute of ``app.state`` for a part of this class."""
    return kind.__name__.lower()


def part_of(request: Request, kind: type[T]) -> T:
    """Return the application's part of this class; raises TypeError if it has none."""
    part = getattr(request.app.state, name_of(kind), None)
    if not isinstance(part, kind):
        raise TypeError(f"the application has no {kind.__name__}")
    return part
