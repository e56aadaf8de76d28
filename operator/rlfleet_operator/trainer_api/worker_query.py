"""Asks the workers of a fleet how they are, all at once, on a trainer's behalf.

It asks and commands nothing, and it names no epoch: no question from here keeps a
driver's change alive. So any process of the operator may ask, whoever leads.
"""

import asyncio
from collections.abc import Mapping

from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.core.model.world import Pod
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.workers.client import WorkerClient, demand_of, url_of

_AT_ONCE = 64
"""Questions of one request under way at once."""


async def reports(pods: Mapping[str, Pod], token: str, port: int) -> dict[str, WorkerReport | str]:
    """Return each worker's report, or why there is none; who cannot be asked is left out."""
    limit = asyncio.Semaphore(_AT_ONCE)
    asked = {name: pod for name, pod in pods.items() if pod.answers_at is not None}
    found = await asyncio.gather(*(_report(pod, limit, token, port) for pod in asked.values()))
    return dict(zip(asked, found, strict=True))


async def _report(pod: Pod, limit: asyncio.Semaphore, token: str, port: int) -> WorkerReport | str:
    client = WorkerClient(url_of(pod.answers_at or "", port), limit)
    try:
        return demand_of(pod, await client.state(token))
    except OperatorError as error:
        return str(error)
    finally:
        await client.close()
