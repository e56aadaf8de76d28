"""Asks the workers of a fleet how they are, all at once, on a trainer's behalf.

It asks and commands nothing, and it names no epoch: no question from here keeps a
driver's change alive. So any process of the operator may ask, whoever leads.
"""

import asyncio
from collections.abc import Mapping

from rlfleet_contract.models import WorkerReport
from rlfleet_operator.adapters.worker import WorkerClient, url_of
from rlfleet_operator.core.world import Pod
from rlfleet_operator.errors import OperatorError

_AT_ONCE = 64
"""Questions of one request under way at once."""


async def reports(pods: Mapping[str, Pod], token: str, port: int) -> dict[str, WorkerReport | str]:
    """Return each worker's report, or why there is none; pods without an address are left out."""
    limit = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(
        *(
            _report(url_of(pod.address, port), limit, token)
            for pod in pods.values()
            if pod.address is not None
        )
    )
    names = [name for name, pod in pods.items() if pod.address is not None]
    return dict(zip(names, found, strict=True))


async def _report(url: str, limit: asyncio.Semaphore, token: str) -> WorkerReport | str:
    client = WorkerClient(url, limit)
    try:
        return await client.state(token)
    except OperatorError as error:
        return str(error)
    finally:
        await client.close()
