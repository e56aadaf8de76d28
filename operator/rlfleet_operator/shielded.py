"""What is brought to its end once begun, though the caller goes away.

The event loop keeps weak references only: a task that nothing else holds may vanish in the middle.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Begun:
    """The tasks that go on without those that asked for them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def through(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns; a caller that is cancelled does not cancel it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)
