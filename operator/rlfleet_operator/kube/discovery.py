"""Whether the API server's discovery names fleets.

kopf reads discovery once, at its start, and watches nothing that it does not name then. The API
server serves a resource slightly before.
"""

import asyncio
import logging

from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, PLURAL
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.kube.client import KubeClient

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0


async def fleets_named(kube: KubeClient) -> None:
    """Return once discovery names fleets; an API server that does not answer is asked again."""
    while True:
        try:
            groups = (await kube.get("/apis"))["groups"]
            served = (await kube.get(f"/apis/{GROUP}/{API_VERSION}"))["resources"]
        except OperatorError as error:
            _log.warning("Failed to discover fleets", extra={"error": str(error)})
        else:
            is_named = any(group["name"] == GROUP for group in groups)
            if is_named and any(resource["name"] == PLURAL for resource in served):
                return
        await asyncio.sleep(_AGAIN_S)
