"""Runs work to its end even if its caller is cancelled.

The event loop keeps only weak references to tasks, so this keeps strong ones.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Begun:
    """Tasks that outlive their callers."""

    def __init__(self) -> None:
        """Start with no task."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def through(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``; cancelling the caller does not cancel the work."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)
