"""Runs the same work once: callers join the task under way, and cancelling one does not end it.

It does no I/O; the work may.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key]):
    """The tasks under way, by key.

    The event loop has only weak references to tasks, so without this one a task may vanish.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._tasks: dict[Key, asyncio.Task[Any]] = {}

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of tasks under way, in the order of their begin."""
        return tuple(key for key, task in self._tasks.items() if not task.done())

    def begin(
        self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]
    ) -> asyncio.Task[Result]:
        """Return the task under way with this key, or start one."""
        task: asyncio.Task[Result] | None = self._tasks.get(key)
        if task is None or task.done():
            self._tasks[key] = task = asyncio.create_task(work())
            task.add_done_callback(lambda ended: self._landed(key, ended))
        return task

    async def join(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the work's result; cancelling the caller does not cancel the work."""
        return await asyncio.shield(self.begin(key, work))

    async def landed(self) -> None:
        """Wait until all tasks under way have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _landed(self, key: Key, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        # Retrieved, because asyncio logs an exception that no caller retrieves.
        if not task.cancelled():
            task.exception()
