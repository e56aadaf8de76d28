"""What a worker looks for in the store while an operator asks: the newest version, and the rest."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rlfleet_sidecar.newest.watch import NewestWatch
from rlfleet_sidecar.retention.keeper import Keeper
from rlfleet_sidecar.state.store_view import StoreView


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks at the store."""

    newest: NewestWatch
    keeper: Keeper

    def found(self) -> StoreView:
        """Return what was found last, for the report."""
        return StoreView(self.newest.newest, self.newest.failure, self.keeper.found)

    async def run(self, in_use: Callable[[], frozenset[str]]) -> None:
        """Look until cancelled; ``in_use`` returns the versions that this worker holds."""
        await asyncio.gather(self.newest.run(), self.keeper.run(in_use))
