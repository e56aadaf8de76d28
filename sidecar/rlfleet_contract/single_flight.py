"""The same work once: callers join the task under way, and none of them ends it by leaving.

It does no I/O: the operator and the sidecar do that in the work that they hand to it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key]):
    """The tasks under way, by what makes two of them the same.

    Held here, because the event loop keeps weak references only: a task that nothing else
    holds may vanish in the middle.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._tasks: dict[Key, asyncio.Task[Any]] = {}

    @property
    def keys(self) -> tuple[Key, ...]:
        """What is under way, in the order in which it began."""
        return tuple(key for key, task in self._tasks.items() if not task.done())

    def begin(
        self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]
    ) -> asyncio.Task[Result]:
        """Return the task of this key, begun now if none is under way."""
        task: asyncio.Task[Result] | None = self._tasks.get(key)
        if task is None or task.done():
            self._tasks[key] = task = asyncio.create_task(work())
            task.add_done_callback(lambda ended: self._landed(key, ended))
        return task

    async def join(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return what the work returns; a caller that is cancelled does not cancel it."""
        return await asyncio.shield(self.begin(key, work))

    async def landed(self) -> None:
        """Wait until what is under way has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def _landed(self, key: Key, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        # Retrieved, or asyncio reports it as an error of its own where every caller has left.
        if not task.cancelled():
            task.exception()
