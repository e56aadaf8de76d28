"""When the API server may be called again, by its Retry-After.

Its flow control answers 429 and a number of seconds, which grows while it is overloaded. It counts
all requests of one ServiceAccount together, so each call of a client waits.
"""

import asyncio
import time
from collections.abc import Mapping

_LONGEST_S = 30.0
"""The API server's own longest is 32 s; a proxy may name hours."""


class RetryAfter:
    """The pause that the API server requested last."""

    def __init__(self) -> None:
        """Start without a pause."""
        self._until = 0.0

    def note(self, headers: Mapping[str, str]) -> None:
        """Begin the pause that an answer requests, if it does so in seconds."""
        asked = headers.get("Retry-After", "")
        if asked.isdecimal():
            pause_s = min(float(asked), _LONGEST_S)
            self._until = max(self._until, time.monotonic() + pause_s)

    async def wait(self) -> None:
        """Wait until the pause is over."""
        await asyncio.sleep(self._until - time.monotonic())
