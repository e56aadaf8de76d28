"""Bounds how many requests of one kind are under way, behind the credentials.

A request may wait for minutes: for a marker, an engine that boots, another's change. A
client that repeats without an end would pile them up, each with its body and its task. It must
stay true that reads leave room for commands and commands for reads, and that a request that
ends, however it ends, leaves its place.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError

COMMANDS, READS = 32, 128
"""Of one route at once. A fleet's operator has one of each kind; trainers have a few."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Crowd:
    """Counts the requests under way, by method and route."""

    def __init__(self) -> None:
        self._inside: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def place(self, method: str, route: str) -> Iterator[None]:
        """Hold a place while this lasts; raises TooManyRequests when all are taken."""
        kind, most = (method, route), READS if method in _READING else COMMANDS
        if self._inside[kind] >= most:
            raise SidecarError(
                Code.TOO_MANY_REQUESTS,
                f"{most} requests {method} {route:.100} are under way here: wait for their"
                " answers before you send another",
            )
        self._inside[kind] += 1
        try:
            yield
        finally:
            self._inside[kind] -= 1
            if not self._inside[kind]:
                del self._inside[kind]
