"""What stands around a fleet's pods is kept as it shall be; the token to its workers is known."""

import asyncio
import logging
import math
import time
from collections.abc import Callable

from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.errors import Conflict, NotLeading, OperatorError
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import Kube
from rlfleet_operator.kube.lease import Term
from rlfleet_operator.reconcile import object_errors
from rlfleet_operator.reconcile.object_errors import Trouble

_log = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""How often Services, Secret and PodDisruptionBudget are looked after at rest."""
_RENEW_S = 5.0
"""The token is read again once in this time at most, however many workers refuse it."""
_SOON_S, _LATER_S = 5.0, 10.0
"""When they are looked after again: after what may pass, and after what somebody has to mend."""


class Upkeep:
    """Looks after the surroundings of one fleet."""

    def __init__(self, kube: Kube, term: Term, fleet: Callable[[], Fleet]) -> None:
        """Begin with nothing seen; ``fleet`` tells the newest state of it."""
        self._kube, self._term, self._fleet = kube, term, fleet
        self._token = ""
        self._renewing = asyncio.Lock()
        self._renewed_at = -math.inf
        self._unread: OperatorError | None = None
        """Why the last read of the token failed; None if it did not."""
        self._seen: tuple[str, int] | None = None
        """UID and generation of the fleet as it was at the last look."""
        self._again_at = 0.0
        self.trouble: Trouble | None = None
        """Why the last look failed; None if it did not."""

    def again_in_s(self) -> float:
        """Return the seconds until a look that failed is worth another."""
        return INTERVAL_S if self.trouble is None else max(0.0, self._again_at - time.monotonic())

    async def look(self, fleet: Fleet) -> None:
        """Make the surroundings what they shall be, if it is time to; Conflict is the caller's."""
        now, seen = time.monotonic(), (fleet.uid, fleet.generation)
        if self._seen == seen and now < self._again_at:
            return
        try:
            await apply.surroundings(self._kube, fleet)
            self._token = await apply.admin_token(self._kube, fleet)
        except (Conflict, NotLeading):
            raise
        except OperatorError as error:
            extra = {"namespace": fleet.namespace, "fleet": fleet.name, "error": str(error)}
            _log.warning("Failed to reconcile Services, Secret or PodDisruptionBudget", extra=extra)
            self.trouble = object_errors.after([error], self.trouble, now)
            pause_s = _SOON_S if object_errors.may_pass(error) else _LATER_S
        else:
            self.trouble, pause_s = None, INTERVAL_S
        self._seen, self._again_at = seen, now + pause_s

    async def token(self) -> str:
        """Return what every call to a sidecar needs; raises NotLeading if none may be made now."""
        token = self._token or await self.renew()
        self._term.demand()
        return token

    async def renew(self) -> str:
        """Read the token again, if it was not read a moment ago.

        After a rotation each worker refuses the token until its kubelet has mounted the new one.
        """
        async with self._renewing:
            if time.monotonic() >= self._renewed_at + _RENEW_S:
                self._renewed_at = time.monotonic()
                try:
                    self._token = await apply.admin_token(self._kube, self._fleet())
                except OperatorError as error:
                    self._unread = error
                else:
                    self._unread = None
        if self._unread is not None:
            raise self._unread
        return self._token
