"""Limits concurrent requests per route, after the check of credentials.

A request may wait for minutes: for a marker, for an engine's boot, for another change. A client
that retries endlessly would accumulate them, each with a body and a task. It must stay true
that reads and commands have separate limits, and that every request that ends frees its place.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError

COMMANDS, READS = 32, 128
"""Per route. A fleet's operator needs one of each; trainers need a few."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestLimit:
    """Counts concurrent requests by method and route."""

    def __init__(self) -> None:
        self._inside: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, method: str, route: str) -> Iterator[None]:
        """Occupy a place; raises TooManyRequests if none is free."""
        kind, most = (method, route), READS if method in _READING else COMMANDS
        if self._inside[kind] >= most:
            raise SidecarError(
                Code.TOO_MANY_REQUESTS,
                f"too many concurrent requests {method} {route:.100} (at most {most}); wait for"
                " their replies",
            )
        self._inside[kind] += 1
        try:
            yield
        finally:
            self._inside[kind] -= 1
            if not self._inside[kind]:
                del self._inside[kind]
