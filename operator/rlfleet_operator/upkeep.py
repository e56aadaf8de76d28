"""What stands around a fleet's pods is kept as it shall be; the token to its workers is known."""

import logging
import time
from collections.abc import Callable

from rlfleet_operator import execute, trouble
from rlfleet_operator.adapters.kube import Kube
from rlfleet_operator.adapters.lease import Term
from rlfleet_operator.core.world import Fleet
from rlfleet_operator.errors import Conflict, NotLeading, OperatorError
from rlfleet_operator.trouble import Trouble

_log = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""How often Services, Secret and PodDisruptionBudget are looked after at rest."""
_SOON_S, _LATER_S = 5.0, 10.0
"""When they are looked after again: after what may pass, and after what somebody has to mend."""


class Upkeep:
    """Looks after the surroundings of one fleet."""

    def __init__(self, kube: Kube, term: Term, fleet: Callable[[], Fleet]) -> None:
        """Begin with nothing seen; ``fleet`` tells the newest state of it."""
        self._kube, self._term, self._fleet = kube, term, fleet
        self._token = ""
        self._generation = -1
        self._again_at = 0.0
        self.trouble: Trouble | None = None
        """Why the last look failed; None if it did not."""

    def again_in_s(self) -> float:
        """Return the seconds until a look that failed is worth another."""
        return INTERVAL_S if self.trouble is None else max(0.0, self._again_at - time.monotonic())

    async def look(self, fleet: Fleet) -> None:
        """Make the surroundings what they shall be, if it is time to; Conflict is the caller's."""
        now = time.monotonic()
        if self._generation == fleet.generation and now < self._again_at:
            return
        try:
            await execute.surroundings(self._kube, fleet)
            self._token = await execute.admin_token(self._kube, fleet)
        except (Conflict, NotLeading):
            raise
        except OperatorError as error:
            extra = {"namespace": fleet.namespace, "fleet": fleet.name, "error": str(error)}
            _log.warning("what stands around a fleet could not be looked after", extra=extra)
            self.trouble = trouble.after([error], self.trouble, now)
            pause_s = _SOON_S if trouble.may_pass(error) else _LATER_S
        else:
            self.trouble, pause_s = None, INTERVAL_S
        self._generation, self._again_at = fleet.generation, now + pause_s

    async def token(self) -> str:
        """Return what every call to a sidecar needs; raises NotLeading if none may be made now."""
        token = self._token or await self.renew()
        self._term.demand()
        return token

    async def renew(self) -> str:
        """Read the token anew."""
        self._token = await execute.admin_token(self._kube, self._fleet())
        return self._token
