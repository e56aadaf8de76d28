"""What all fleets that a process drives share."""

import asyncio
from dataclasses import dataclass

from rlfleet_operator.kube.client import Kube
from rlfleet_operator.kube.lease import Term
from rlfleet_operator.kube.pod_cache import Pods
from rlfleet_operator.settings import OperatorSettings


@dataclass(frozen=True, slots=True)
class Services:
    """What every driver works with."""

    kube: Kube
    pods: Pods
    settings: OperatorSettings
    limit: asyncio.Semaphore
    term: Term
    """For which this process leads; ``kube`` writes under it."""
