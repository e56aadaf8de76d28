"""What the drivers of all fleets share: clients, caches, settings."""

import asyncio
from dataclasses import dataclass

from rlfleet_operator.kube.client import KubeClient
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.kube.pod_cache import PodCache
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.workers.certificate import SidecarCertificates


@dataclass(frozen=True, slots=True)
class SharedClients:
    """Clients, caches and settings of every driver."""

    kube: KubeClient
    pods: PodCache
    settings: OperatorSettings
    limit: asyncio.Semaphore
    term: LeaseTerm
    """The current term as leader; ``kube`` writes only while it lasts."""
    certificates: SidecarCertificates
