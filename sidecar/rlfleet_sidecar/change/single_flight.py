"""One command at a time: a repeat of the one under way joins it, another one is refused."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from rlfleet_contract.single_flight import Result, SingleFlight
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError


class FlightKey(NamedTuple):
    """What makes two commands the same."""

    what: str
    operation: str
    version: str


class Flight(SingleFlight[FlightKey]):
    """Holds the command under way, if there is one."""

    @property
    def key(self) -> FlightKey | None:
        """Which command is under way."""
        return next(iter(self.keys), None)

    async def join(self, key: FlightKey, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Carry the command out, or wait for the same one that is under way."""
        busy = self.key
        if busy is not None and busy != key:
            raise SidecarError(
                Code.BUSY,
                f"{busy.what} of version {busy.version} (operation {busy.operation}) is under way",
            )
        return await super().join(key, work)
