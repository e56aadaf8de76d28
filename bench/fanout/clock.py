"""Simulated time, and processes in it.

A process is a generator. It yields seconds to wait, or an event to wait for, and is sent the
event's value.
"""

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar

_Result = TypeVar("_Result")


class Event:
    """Something that a process waits for. The first firing counts."""

    __slots__ = ("_then", "_value", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._value: Any = None
        self._then: Callable[[Any], None] | None = None

    def fire(self, value: Any = None) -> None:
        """Continue the process with this value."""
        if not self.is_over:
            self.is_over, self._value = True, value
            then, self._then = self._then, None
            if then is not None:
                then(value)

    def then(self, act: Callable[[Any], None]) -> None:
        """Call this once it is fired."""
        if self.is_over:
            act(self._value)
        else:
            self._then = act


Process: TypeAlias = Generator[float | Event, Any, _Result]


class Clock:
    """Calls what is due, in order of time; at the same moment, in order of request."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[Any], object], Any]] = []
        self._asked = 0

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def after(self, seconds: float, act: Callable[[Any], object], value: Any = None) -> None:
        """Call this in so many seconds."""
        self._asked += 1
        heappush(self._due, (self.now + seconds, self._asked, act, value))

    def start(self, process: Process[None], is_gone: Callable[[], bool]) -> None:
        """Run a process until its end, or until whoever runs it is gone."""

        def resume(value: Any) -> None:
            if is_gone():
                process.close()
                return
            try:
                wanted = process.send(value)
            except StopIteration:
                return
            if isinstance(wanted, Event):
                wanted.then(resume)
            else:
                self.after(wanted, resume)

        resume(None)

    def run(self, until: Callable[[], bool], most_s: float) -> None:
        """Let time pass until then; raises if that takes too long."""
        while not until():
            self.now, _, act, value = heappop(self._due)
            if self.now > most_s:
                raise RuntimeError(f"simulation not over after {most_s:g} s")
            act(value)
