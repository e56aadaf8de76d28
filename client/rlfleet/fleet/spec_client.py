"""The client of a fleet's object, for code that waits."""

import time
from pathlib import Path

import httpx

from rlfleet.fleet import spec_flows
from rlfleet.fleet.flows import OnProgress
from rlfleet.fleet.kube_access import KubeAuth, access_of
from rlfleet.fleet.replies import ChangeResult, FleetState
from rlfleet.fleet.runner import FlowRunner
from rlfleet.fleet.settings import DEFAULT_S, UPDATE_S

FIELD_MANAGER = "rlfleet-trainer"
"""The trainer's name in the object's managedFields."""


class SpecClient(FlowRunner):
    """A fleet, by its object: sets spec.weightVersion, and reads status.

    For a trainer whose ServiceAccount, or whose user's kubeconfig, may patch fleets: the chart's
    ClusterRole RELEASE-trainer. Every method raises FleetError. Lost replies are requested again
    until the time is over.
    """

    def __init__(
        self,
        fleet: str,
        namespace: str | None = None,
        *,
        kubeconfig: Path | str | None = None,
        context: str | None = None,
        field_manager: str = FIELD_MANAGER,
    ) -> None:
        """Connect with the first request.

        ``namespace`` is by default the pod's, or that of the kubeconfig's context.

        ``kubeconfig`` and ``context`` count if one is given, or outside a pod; they need the
        package kubernetes.
        """
        access = access_of(kubeconfig, context)
        self._fleet = spec_flows.name_of(namespace or access.namespace, fleet)
        self._manager = field_manager
        client = httpx.Client(
            base_url=access.server + self._fleet.collection,
            auth=KubeAuth(access),
            verify=access.verify,
            proxy=access.proxy,
            trust_env=False,
        )
        super().__init__(client)

    def set_version(self, version: str, timeout_s: float = DEFAULT_S) -> FleetState:
        """Write spec.weightVersion, and wait for nothing."""
        args = (self._fleet, version, self._manager, timeout_s, time.monotonic)
        return self._run(spec_flows.set_version(*args))

    def update_weights(
        self,
        version: str,
        timeout_s: float = UPDATE_S,
        progress: OnProgress = lambda _: None,
    ) -> ChangeResult:
        """Write spec.weightVersion; return when every worker has proved it.

        ``progress`` gets a result whenever the fleet's message changes.
        """
        args = (self._fleet, version, self._manager, timeout_s, time.monotonic, progress)
        return self._run(spec_flows.update(*args))

    def state(self, timeout_s: float = DEFAULT_S) -> FleetState:
        """Return the fleet as its object has it; ``in_flight`` is 0: the object has no such."""
        return self._run(spec_flows.state(self._fleet, timeout_s, time.monotonic))

    def wait(self, version: str, timeout_s: float = UPDATE_S) -> FleetState:
        """Return when every worker serves a version that the spec, a store or a trainer sets."""
        return self._run(spec_flows.wait(self._fleet, version, timeout_s, time.monotonic))
