"""Wakes the streams of reports when the worker's state may have changed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class News:
    """Any number of listeners, each with an event of its own."""

    def __init__(self) -> None:
        self._listeners: set[asyncio.Event] = set()

    def announce(self) -> None:
        """Set the event of every listener."""
        for listener in self._listeners:
            listener.set()

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set with each announcement; the listener clears it."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            yield event
        finally:
            self._listeners.discard(event)
