"""Reads fleets and their workers for the fleet API, and records trainers' requests in status.

A record is a compare-and-swap on the whole object, so the driver finds it in any process.
This module sends no command to a worker.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

from pydantic import ValidationError

from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.core.status import invalid_object
from rlfleet_operator.core.trainer import replies
from rlfleet_operator.core.trainer.models import Fault, Refusal
from rlfleet_operator.core.trainer.replies import WorkerState
from rlfleet_operator.errors import Conflict, OperatorError, Retryable
from rlfleet_operator.kube.client import Json, fleet_path
from rlfleet_operator.kube.pod_cache import FleetKey
from rlfleet_operator.reconcile.supervisor import Supervisor
from rlfleet_operator.workers.client import WorkerClient, client_of, demand_of

_AT_ONCE = 64
"""Concurrent state requests for one request of a trainer."""


ClientOf = Callable[[Pod, asyncio.Semaphore], WorkerClient]


async def reports(
    pods: Mapping[str, Pod], token: str, make_client: ClientOf
) -> dict[str, WorkerReport | str]:
    """Return each worker's report, or the error; workers without an address are left out."""
    limit = asyncio.Semaphore(_AT_ONCE)
    asked = {name: pod for name, pod in pods.items() if pod.answers_at is not None}
    asking = (_report(pod, make_client(pod, limit), token) for pod in asked.values())
    return dict(zip(asked, await asyncio.gather(*asking), strict=True))


async def _report(pod: Pod, client: WorkerClient, token: str) -> WorkerReport | str:
    try:
        return demand_of(pod, await client.state(token))
    except OperatorError as error:
        return str(error)
    finally:
        await client.close()


_ATTEMPTS = 20
"""Attempts of one record; the driver writes the same object at most once a second."""

MakePatch = Callable[[Fleet, Json], Json | None]
"""Returns the merge patch for a fleet's current state, None for no change; raises Refusal."""


class FleetView:
    """Reads fleets, and records trainers' requests."""

    def __init__(self, fleets: Supervisor, admin_port: int) -> None:
        """Read these fleets, whose sidecars listen on ``admin_port``."""
        self._fleets, self._admin_port = fleets, admin_port

    def fleet(self, key: FleetKey) -> Fleet:
        """Return the newest known state; raises Refusal if it is deleted or invalid."""
        raw = self._fleets.known(key)
        if raw is None:
            raise Refusal(Fault.NOT_FOUND, f"no fleet {key[1]} in namespace {key[0]}; create it")
        return _parsed(raw)

    async def observed(self, key: FleetKey, token: str) -> tuple[Fleet, list[WorkerState]]:
        """Return the fleet and its workers' current reports."""
        pods = {n: p for n, p in self._fleets.pods_of(key).items() if not p.terminating}
        said = await reports(pods, token, partial(self._client, key))
        fleet = self.fleet(key)
        is_paused = fleet.pause_at(time.time()) is not None
        return fleet, replies.states_of(fleet, pods, said, fleet_paused=is_paused)

    def _client(self, key: FleetKey, pod: Pod, limit: asyncio.Semaphore) -> WorkerClient:
        certificate = self._fleets.certificates.of(key, pod)
        return client_of(pod, self._admin_port, limit, certificate)

    async def news(self, key: FleetKey, within_s: float) -> None:
        """Return when a fleet has a newer state, or after ``within_s`` seconds."""
        await self._fleets.news(key, within_s)

    async def record(self, key: FleetKey, make_patch: MakePatch) -> Fleet:
        """Patch status with ``make_patch`` of the current state; return the fleet afterwards."""
        for _ in range(_ATTEMPTS):
            raw = await self._fleets.kube.get(fleet_path(*key))
            patch = make_patch(_parsed(raw), raw)
            if patch is not None:
                try:
                    raw = await self._fleets.kube.patch(fleet_path(*key) + "/status", patch)
                except Conflict:
                    continue
                if any(field not in raw.get("status", {}) for field in patch["status"]):
                    what = ", ".join(patch["status"])
                    raise Retryable(f"the API server dropped status.{what}; upgrade the CRD")
            self._fleets.deliver(None, raw)
            return _parsed(raw)
        raise Retryable(f"writing status met {_ATTEMPTS} conflicts; send the request again")


def _parsed(raw: Json) -> Fleet:
    """Parse a fleet; raises Refusal that names the invalid field."""
    try:
        return fleet_from(raw)
    except ValidationError as error:
        raise Refusal(Fault.INVALID_OBJECT, invalid_object.message(error)) from error
