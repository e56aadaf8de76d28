"""What trainers ask about the engine beside a worker; nothing changes by an answer."""

from rlfleet_contract.models import Stage
from rlfleet_contract.problems import Code
from rlfleet_sidecar.bounds import within
from rlfleet_sidecar.engine import Engine, Relayed
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.journal import Journal

_LOOK_S = 4.0
"""Shorter than prime-rl waits for /metrics, 5 s."""
_ALIVE_S = 2.0
"""The extension answers within one."""


class Questions:
    """Asks the engine itself: what its API server says of a core that hangs is no answer."""

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal

    async def world_size(self, *, include_dp: bool = True) -> int:
        """Tell how many ranks the engine has."""
        async with within(Code.ENGINE_UNREACHABLE, _LOOK_S):
            return await self._engine.world_size(include_dp=include_dp)

    async def is_alive(self) -> bool:
        """Tell whether the engine answers at all; one that is paused or reloads does."""
        return self._journal.state.stage is not Stage.DOWN and await self._engine.is_alive(_ALIVE_S)

    async def demand_alive(self) -> None:
        """See that the engine answers at all."""
        if not await self.is_alive():
            raise SidecarError(
                Code.ENGINE_UNREACHABLE, f"the engine did not answer within {_ALIVE_S:g} s"
            )

    async def relayed(self, path: str) -> Relayed:
        """Return the engine's own answer."""
        async with within(Code.ENGINE_UNREACHABLE, _LOOK_S):
            return await self._engine.relayed(path)
