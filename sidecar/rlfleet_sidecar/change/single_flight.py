"""One command at a time: a repeat joins it, another command gets Busy."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from rlfleet_contract.single_flight import Result, SingleFlight
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError


class FlightKey(NamedTuple):
    """Two commands with the same key are repeats."""

    what: str
    operation: str
    version: str


class Flight(SingleFlight[FlightKey]):
    """The command under way, if there is one."""

    @property
    def key(self) -> FlightKey | None:
        """The command under way."""
        return next(iter(self.keys), None)

    async def join(self, key: FlightKey, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Carry out the command, or wait for its repeat under way."""
        busy = self.key
        if busy is not None and busy != key:
            raise SidecarError(
                Code.BUSY,
                f"{busy.what} of version {busy.version} (operation {busy.operation}) is under way;"
                " retry after it",
            )
        return await super().join(key, work)
