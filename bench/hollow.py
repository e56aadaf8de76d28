"""The workers of the scale benchmark, in a process of their own: python -m bench.hollow.

Real sidecars over fake engines, hundreds in one process. They look at their engines
seldom, because they share the cores with what is measured, and reach them without a
socket: in a loop full of work a connection over loopback would time out. The engines preload
nothing: that is an engine's work, and was a third of this process's. With --lean the sidecars
are simulated too (lean.py). For every line on standard input it prints one line of JSON: what
each worker proved last, and when. Then it takes what exists out of Python's garbage collection: a
full one would look at hundreds of sidecars, where a sidecar's own process looks at one.
"""

import argparse
import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Any

import httpx
from kubernetes.aio import client, config

from bench.lean import LeanNode, LeanWorker
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.kube.client import KubeClient
from tests.fakes import checkpoints
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.hollow import HollowNode

VERSIONS = ("step-1", "step-2")
POLL_S = 10.0
PROBE_S = 5.0


class Joined(Worker):
    """A worker whose sidecar calls the engine's application without a socket."""

    def _way(self) -> httpx.AsyncBaseTransport:
        return httpx.ASGITransport(self._engine)

    async def _engine(self, scope: Any, receive: Any, send: Any) -> None:
        # Read at each call, because an engine that restarts has another application.
        await self.engine.application(scope, receive, send)

    async def _listen(self) -> None:
        """Accept nothing: no sampler asks these engines."""


async def main() -> None:
    """Stand for every pod of a namespace until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig")
    parser.add_argument("namespace")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("share", help="INDEX/COUNT: the index of this process among COUNT")
    parser.add_argument("--lean", action="store_true", help="simulate the sidecars too")
    options = parser.parse_args()
    settings = client.Configuration()
    await config.load_kube_config(options.kubeconfig, client_configuration=settings)
    kube = KubeClient(client.ApiClient(settings))
    weights = options.scratch / "weights"
    for seed, version in enumerate(VERSIONS, start=1):
        checkpoints.write_version(weights, version, seed)
    model = checkpoints.write_model(options.scratch / "model")
    place, count = map(int, options.share.split("/"))
    lean: dict[str, Any] = {"make": LeanWorker}
    real: dict[str, Any] = {
        "make": Joined,
        "probe_s": PROBE_S,
        "choose": lambda _: {"poll_s": POLL_S, "behaviour": Behaviour(preload_skipped=True)},
    }
    node = (LeanNode if options.lean else HollowNode)(
        kube,
        options.namespace,
        model,
        weights,
        options.scratch / "pods",
        is_mine=lambda name: int(name.rpartition("-")[2]) % count == place,
        **(lean if options.lean else real),
    )
    async with node:
        while await asyncio.to_thread(sys.stdin.readline):
            workers: list[Worker | LeanWorker] = [pod.worker for pod in node.pods.values()]
            reports = [
                _told(one.report if isinstance(one, LeanWorker) else await one.report())
                for one in workers
            ]
            print(json.dumps(reports), flush=True)
            gc.collect()
            gc.freeze()
    await kube.close()


def _told(report: WorkerReport) -> dict[str, object]:
    change = report.last_change
    return {
        "proved": report.proved,
        "finished_at": change.finished_at if change else 0.0,
        "window_s": change.timings.window_s if change else 0.0,
    }


if __name__ == "__main__":
    asyncio.run(main())
