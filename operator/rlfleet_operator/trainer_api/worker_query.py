"""Reads the state of a fleet's workers for a trainer's request.

It sends no command and no epoch, so it renews no change's TTL. Every operator process may use
it, a standby too.
"""

import asyncio
from collections.abc import Mapping

from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.core.model.world import Pod
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.workers.client import WorkerClient, demand_of, url_of

_AT_ONCE = 64
"""Concurrent state requests for one request of a trainer."""


async def reports(pods: Mapping[str, Pod], token: str, port: int) -> dict[str, WorkerReport | str]:
    """Return each worker's report, or the error; workers without an address are left out."""
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
