"""Looks for versions every few seconds, for as long as the operator follows the trainer.

In a store each look costs requests: the longer nothing came, the rarer are looks there. A place
that does not answer delays nothing: one thread at most waits for it, and the sidecar reports
what it found before, for a minute: another worker may see more.
"""

import asyncio
import logging
import time
from typing import Self

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest.offers import Offers, is_due
from rlfleet_sidecar.newest.search import BrokenPointerError, Search
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.timeouts import Glance, in_thread

_ASKED_S = 60.0
"""An operator that follows asks more often."""
_LOOK_S = 10.0
"""For the listing of a large directory on a network's file system."""
_KEPT_S = 60.0
"""What was found counts so long without another good look."""
_RETRY_S = 5.0
"""How long a look repeats a request that the store fails: the next look comes soon."""
_RAREST_S = 30.0
"""The longest time between two looks at a store that answers."""
_SHARE = 20
"""A look at a store waits for this part of the time in which nothing came."""
_UNANSWERED = Problem.of(
    Code.CHECKPOINT_UNREADABLE, "the weights volume does not answer; check its server"
)
_log = logging.getLogger(__name__)


class NewestWatch:
    """The newest version in the store, as far as this worker sees."""

    def __init__(
        self,
        search: Search,
        every_s: float,
        patience_s: float = _LOOK_S,
        kept_s: float = _KEPT_S,
        *,
        rarest_s: float = 0.0,
        offers: Offers | None = None,
    ) -> None:
        """Look each ``every_s``; if nothing comes for long, each ``rarest_s`` if that is longer."""
        self._search, self._offers = search, offers
        self._taken_up: str | None = None
        """What the fleet has taken up, if it acknowledges what its trainer offers."""
        self._every_s = every_s
        self._rarest_s = rarest_s
        self._changed_at = 0.0
        """When another version was found, or the first look began."""
        self._glance = Glance(patience_s)
        self._asked = asyncio.Event()
        self._asked_at = -_ASKED_S
        self._kept_s = kept_s
        self._error: str | None = None
        self._seen_at = 0.0
        """When the last good look ended."""
        self.newest: Newest | None = None
        """None if nothing was found, or no operator asked lately."""
        self.failure: Problem | None = None
        """Why the last looks failed, if an operator asked lately: one alone may have met a pointer
        that was being written."""

    @classmethod
    def of(cls, settings: SidecarSettings) -> Self:
        """Return the watch of the published versions."""
        short = {"store_retry_s": min(settings.store_retry_s, _RETRY_S)}
        layouts = Layouts.of(settings.model_copy(update=short))
        search = Search(layouts, settings.markers, settings.engine_uid)
        if layouts.store is not None:
            return cls(search, settings.follow_s, rarest_s=_RAREST_S)
        return cls(search, settings.follow_s, offers=Offers(layouts))

    def ask(self, taken_up: str | None = None) -> None:
        """Look for a while, from now on; with ``taken_up`` accept what is offered beyond it."""
        self._taken_up = taken_up
        self._asked_at = time.monotonic()
        if not self._asked.is_set():
            self._changed_at = self._asked_at
        self._asked.set()

    async def run(self) -> None:
        """Look while asked, until cancelled."""
        while True:
            await self._asked.wait()
            if time.monotonic() - self._asked_at > _ASKED_S:
                self.newest = self.failure = None
                self._asked.clear()
                continue
            try:
                await in_thread(lambda: self._glance.sees(self._look))
            except Exception:  # noqa: BLE001 - the look must continue
                _log.exception("Search for versions failed by an internal error")
            if time.monotonic() - self._seen_at > self._kept_s:
                self.newest, self.failure = None, self.failure or _UNANSWERED
            quiet_s = time.monotonic() - self._changed_at
            await asyncio.sleep(pause_s(quiet_s, self._every_s, self._rarest_s))

    def _look(self) -> bool:
        try:
            self._learn(self._search.newest(self.newest, time.time()))
            self._accept()
        except SidecarError as error:
            if error.message != self._error:
                _log.warning("Failed to look for versions", extra={"error": error.message})
            elif self._error is not None:
                self.failure = Problem.of(error.code, error.message)
            self._error = error.message
            if isinstance(error, BrokenPointerError):
                self.newest = None
            return False
        self._error = self.failure = None
        return True

    def _learn(self, found: Newest | None) -> None:
        self._seen_at = time.monotonic()
        if found != self.newest:
            self.newest, self._changed_at = found, self._seen_at

    def _accept(self) -> None:
        """Accept what is offered, once the fleet has taken up what was published before."""
        if self._offers is not None and is_due(self._taken_up, self.newest):
            for version in self._offers.accept():
                _log.info("Offer of a version accepted", extra={"version": version})


def pause_s(quiet_s: float, every_s: float, rarest_s: float) -> float:
    """Return the time until the next look, after so long without another version. Pure."""
    return max(every_s, min(quiet_s / _SHARE, rarest_s))
