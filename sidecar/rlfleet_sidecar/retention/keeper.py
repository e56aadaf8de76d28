"""Looks for versions that are not needed while the operator says what is needed, and deletes them.

It must stay true that nothing is deleted unless a driver has said lately what its fleet needs,
that what this worker holds or takes up is kept whatever the driver said, and that what is left
of a version never looks complete.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Self

from rlfleet_contract.worker.retention import Needs, Unneeded
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.deltas.formats.names import SKYRL, WEIGHTS
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.retention.stock import Stock
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.timeouts import in_thread

FRESH_S = 120.0
"""A driver says what is needed every 40 s; without that for so long nothing is deleted."""
_log = logging.getLogger(__name__)


class Keeper:
    """The versions that are not needed, as far as this worker sees."""

    def __init__(
        self,
        stock: Stock,
        remove: Callable[[str], None],
        every_s: float,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._stock = stock
        self._remove = remove
        self._in_use: Callable[[], frozenset[str]] = frozenset
        """Returns the versions that this worker holds or takes up."""
        self._every_s, self._fresh_s = every_s, fresh_s
        self._needs: Needs | None = None
        self._asked_at = 0.0
        self._asked = asyncio.Event()
        self._deleted = 0
        self.found: Unneeded | None = None
        """None while no driver asks."""

    @classmethod
    def of(cls, settings: SidecarSettings) -> Self:
        """Return the keeper of the published versions."""
        layouts = Layouts.of(settings)
        commits = {WEIGHTS.commit, SKYRL.commit}
        # Without markers a lone file is a complete version.
        steps = (frozenset(settings.markers), commits, {"model.safetensors"})
        return cls(
            Stock(settings, layouts),
            lambda version: layouts.remove(version, steps),
            settings.retain_s,
        )

    def ask(self, needs: Needs) -> None:
        """Record what the fleet needs now."""
        self._needs, self._asked_at = needs, time.monotonic()
        self._asked.set()

    async def run(self, in_use: Callable[[], frozenset[str]]) -> None:
        """Look while asked, until cancelled; ``in_use`` returns what this worker holds."""
        self._in_use = in_use
        try:
            while True:
                await self._asked.wait()
                needs = self._needs
                if needs is None or not self._is_current(needs):
                    self.found = None
                    self._asked.clear()
                    continue
                try:
                    await in_thread(lambda: self._look(needs))  # noqa: B023 - awaited at once
                except Exception:  # noqa: BLE001 - the look must continue
                    _log.exception("Search for unneeded versions failed by an internal error")
                await asyncio.sleep(self._every_s)
        finally:
            # A thread that still deletes stops with its version.
            self._needs = None

    def _is_current(self, needs: Needs) -> bool:
        is_fresh = time.monotonic() - self._asked_at <= self._fresh_s
        return is_fresh and self._needs == needs

    def _look(self, needs: Needs) -> None:
        known = self.found or Unneeded()
        try:
            wanted = {*needs.versions, *self._in_use()}
            versions, count = self._stock.unneeded(wanted, needs.keep or 0)
            gone = self._delete(versions, needs) if needs.keep is not None else 0
            left = list(versions[gone:])
            found = Unneeded(versions=left, count=count - gone, deleted=self._deleted)
        except SidecarError as error:
            if error.message != known.error:
                _log.warning("Failed to look for unneeded versions", extra={"error": error.message})
            update = {"error": error.message, "deleted": self._deleted}
            found = known.model_copy(update=update)
        self.found = found

    def _delete(self, versions: tuple[str, ...], needs: Needs) -> int:
        """Delete versions, the oldest first; returns how many."""
        for place, version in enumerate(versions):
            if not self._is_current(needs) or version in self._in_use():
                return place
            self._remove(version)
            self._deleted += 1
            _log.info("Version deleted in the store", extra={"version": version})
        return len(versions)
