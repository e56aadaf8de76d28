"""A fleet as the fleet API sees it: what is known, what workers say now, and what is recorded.

A record is made by compare-and-swap on the whole object, as a user's patch would be, and the
driver finds it wherever it runs. Nothing here commands a worker.
"""

import time
from collections.abc import Callable

from pydantic import ValidationError

from rlfleet_operator.core.model.world import Fleet, fleet_from
from rlfleet_operator.core.status import conditions
from rlfleet_operator.core.trainer import replies
from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.core.trainer.replies import WorkerState
from rlfleet_operator.errors import Conflict, Retryable
from rlfleet_operator.kube.client import Json, fleet_path
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile.supervisor import Fleets
from rlfleet_operator.trainer_api import worker_query

_ATTEMPTS = 20
"""How often a record is tried: the driver writes the same object once a second at most."""

Heed = Callable[[Fleet, Json], Json | None]
"""Tells the merge patch that a fleet as it is now needs, None if none; raises Refusal."""


class FleetView:
    """Looks at fleets, and records what trainers ask of them."""

    def __init__(self, fleets: Fleets, admin_port: int) -> None:
        """Look at these fleets, whose sidecars answer on this port."""
        self._fleets, self._admin_port = fleets, admin_port

    def fleet(self, key: FleetKey) -> Fleet:
        """Return the fleet as it was seen last; raises Refusal if it is gone or unparsable."""
        raw = self._fleets.known(key)
        if raw is None:
            raise Refusal(Fault.NOT_FOUND, f"fleet {key[1]} in {key[0]} is gone")
        return _parsed(raw)

    async def heard(self, key: FleetKey, token: str) -> tuple[Fleet, list[WorkerState]]:
        """Return the fleet and what its workers say of themselves now."""
        pods = {n: p for n, p in self._fleets.pods_of(key).items() if not p.terminating}
        said = await worker_query.reports(pods, token, self._admin_port)
        fleet = self.fleet(key)
        is_held = fleet.pause_at(time.time()) is not None
        return fleet, replies.heard_of(fleet, pods, said, held=is_held)

    async def news(self, key: FleetKey, within_s: float) -> None:
        """Return when there is something new of a fleet, or after ``within_s`` seconds."""
        await self._fleets.news(key, within_s)

    async def record(self, key: FleetKey, heed: Heed) -> Fleet:
        """Write into status what ``heed`` makes of the fleet as it is now; return it after that."""
        for _ in range(_ATTEMPTS):
            raw = await self._fleets.kube.get(fleet_path(*key))
            patch = heed(_parsed(raw), raw)
            if patch is not None:
                try:
                    raw = await self._fleets.kube.patch(fleet_path(*key) + "/status", patch)
                except Conflict:
                    continue
                if any(field not in raw.get("status", {}) for field in patch["status"]):
                    what = ", ".join(patch["status"])
                    raise Retryable(f"status ({what}) was not kept: upgrade the definition")
            self._fleets.deliver(None, raw)
            return _parsed(raw)
        raise Retryable(f"the fleet's status was written {_ATTEMPTS} times in between: ask again")


def _parsed(raw: Json) -> Fleet:
    """Parse a fleet; raises Refusal that names the field and the way out."""
    try:
        return fleet_from(raw)
    except ValidationError as error:
        raise Refusal(Fault.INVALID_OBJECT, conditions.unread(error)) from error
