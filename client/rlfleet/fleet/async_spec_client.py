"""The client of a fleet's object, for asyncio."""

import time
from pathlib import Path

import httpx

from rlfleet.fleet import spec_flows
from rlfleet.fleet.flows import OnProgress
from rlfleet.fleet.kube_access import KubeAuth, access_of
from rlfleet.fleet.replies import ChangeResult, FleetState
from rlfleet.fleet.runner import AsyncFlowRunner
from rlfleet.fleet.settings import DEFAULT_S, UPDATE_S
from rlfleet.fleet.spec_client import FIELD_MANAGER
from rlfleet.fleet.transport import OneRequestTransport


class AsyncSpecClient(AsyncFlowRunner):
    """A SpecClient whose methods are awaited. A version that is set survives cancellation."""

    def __init__(
        self,
        fleet: str,
        namespace: str | None = None,
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> None:
        """As SpecClient."""
        access = access_of(kubeconfig, context)
        self._fleet = spec_flows.name_of(namespace or access.namespace, fleet)
        self._manager = field_manager
        client = httpx.AsyncClient(
            base_url=access.server + self._fleet.collection,
            auth=KubeAuth(access),
            transport=OneRequestTransport(access.verify, access.proxy),
            trust_env=False,
        )
        super().__init__(client)

    async def set_version(self, version: str, timeout_s: float = DEFAULT_S) -> FleetState:
        """As SpecClient.set_version."""
        args = (self._fleet, version, self._manager, timeout_s, time.monotonic)
        return await self._run(spec_flows.set_version(*args))

    async def update_weights(
        self,
        version: str,
        timeout_s: float = UPDATE_S,
        progress: OnProgress = lambda _: None,
    ) -> ChangeResult:
        """As SpecClient.update_weights."""
        args = (self._fleet, version, self._manager, timeout_s, time.monotonic, progress)
        return await self._run(spec_flows.update(*args))

    async def state(self, timeout_s: float = DEFAULT_S) -> FleetState:
        """As SpecClient.state."""
        return await self._run(spec_flows.state(self._fleet, timeout_s, time.monotonic))

    async def wait(self, version: str, timeout_s: float = UPDATE_S) -> FleetState:
        """As SpecClient.wait."""
        return await self._run(spec_flows.wait(self._fleet, version, timeout_s, time.monotonic))
