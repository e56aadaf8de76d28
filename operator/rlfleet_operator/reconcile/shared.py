"""The resources that all drivers of a process share."""

import asyncio
from dataclasses import dataclass

from rlfleet_operator.kube.client import KubeClient
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.kube.pod_cache import PodCache
from rlfleet_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class SharedClients:
    """Clients, caches and settings of every driver."""

    kube: KubeClient
    pods: PodCache
    settings: OperatorSettings
    limit: asyncio.Semaphore
    term: LeaseTerm
    """The current term as leader; ``kube`` writes only while it lasts."""
