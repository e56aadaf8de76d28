"""Several threads for one piece of work, which end together.

They are daemon threads: on a mount whose server is gone one blocks for ever, and must not keep
the process from ending. A thread that is abandoned so keeps what it uses: the crew is not left
before its threads have ended.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_NICE = 5
"""The sidecar's event loop answers probes and holds the dead-man switch: it goes first."""


class Crew:
    """Runs work in threads until the end of its block; then raises the first error of one."""

    def __init__(self, name: str, on_error: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._on_error = on_error
        self._threads: list[threading.Thread] = []
        self.error: BaseException | None = None
        """The first error; work must end soon when it is set."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)
        for thread in self._threads:
            thread.join()
        # An error of the block is often that of a thread, which the block met too.
        if self.error is not None and self.error is not error:
            raise self.error

    def fail(self, error: BaseException) -> None:
        """End the work with an error, unless it has one."""
        self.error = self.error or error
        self._on_error()

    def start(self, count: int, work: Callable[[], None]) -> None:
        """Run work in this many threads."""
        for number in range(count):
            name = f"{self._name}-{number}"
            thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self, work: Callable[[], None]) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the crew's owner raises it
            self.fail(error)
