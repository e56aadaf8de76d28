"""The resources that all drivers of a process share."""

import asyncio
from dataclasses import dataclass

from rlfleet_operator.kube.client import Kube
from rlfleet_operator.kube.lease import Term
from rlfleet_operator.kube.pod_cache import Pods
from rlfleet_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Services:
    """Clients, caches and settings of every driver."""

    kube: Kube
    pods: Pods
    settings: OperatorSettings
    limit: asyncio.Semaphore
    term: Term
    """The current term as leader; ``kube`` writes only while it lasts."""
