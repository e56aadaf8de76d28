"""A driver takes a fleet over while its predecessor's last commands are on their way."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from rlfleet_contract import paths
from rlfleet_operator.core.manifests import owned_objects, pod_manifest
from rlfleet_operator.core.model.world import READINESS_GATE, VERSION_LABEL
from rlfleet_operator.kube import apply
from rlfleet_operator.kube.client import Json, fleet_path, object_path
from rlfleet_operator.kube.lease import LeaseTerm
from rlfleet_operator.kube.pod_cache import PodCache
from rlfleet_operator.reconcile import reconciler
from rlfleet_operator.reconcile.reconciler import Reconciler
from rlfleet_operator.reconcile.shared_clients import SharedClients
from rlfleet_operator.settings import OperatorSettings
from rlfleet_operator.workers.certificate import SidecarCertificates
from tests import fleets, workers
from tests.contract.conftest import TOKEN
from tests.contract.subject import Subject
from tests.fakes.kube import FakeApi, serving
from tests.fakes.worker import Worker
from tests.patience import given_up

EARLIER = 3
SPEC = {"replicas": 1, "weightVersion": "step-2"}
STATUS = workers.recorded("step-2", "Updating") | {"epoch": EARLIER}
FLEET = fleets.fleet(SPEC, status=STATUS)
PATH = fleet_path("rl", "qwen")
PODS = object_path("rl", "pods")


def raw(status: Json, version: int) -> Json:
    """Return the fleet as the API server has it."""
    spec = FLEET.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    names = {"name": "qwen", "namespace": "rl", "uid": FLEET.uid, "generation": 1}
    return {
        "metadata": names | {"resourceVersion": str(version)},
        "spec": spec,
        "status": without_nulls(status),
    }


def without_nulls(found: Any) -> Any:
    """Return what a merge patch of this leaves of nothing."""
    if not isinstance(found, dict):
        return found
    return {key: without_nulls(value) for key, value in found.items() if value is not None}


class Api(FakeApi):
    """It takes patches too, and lets something happen before the fleet's status is written."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.labels: list[str] = []
        """The versions that the worker's pod was said to have proved, in order."""
        self._meanwhile, self._writes = meanwhile, 0

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        if "watch" in request.query:
            await asyncio.sleep(0.2)
            return web.Response()
        if (request.method, request.path) == ("POST", object_path("rl", "events")):
            return web.json_response({})
        if request.method != "PATCH":
            return await super().handle(request)
        body = await request.json()
        if request.path == f"{PODS}/qwen-0":
            self.labels.append(body["metadata"]["labels"][VERSION_LABEL])
        return web.json_response(
            await self._written(body["status"]) if request.path == f"{PATH}/status" else {}
        )

    async def _written(self, status: Json) -> Json:
        self._writes += 1
        if self._writes == 1:
            await self._meanwhile()
        self.objects[PATH] = raw(status, 1 + self._writes)
        return self.objects[PATH]


def listed() -> Json:
    """Return the list with the worker's pod, which has no mark yet."""
    pod = pod_manifest.pod(FLEET, 0, pod_manifest.Defaults("worker:1"))
    pod["metadata"] |= {"uid": "p-0", "resourceVersion": "1"}
    pod["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
    return {"metadata": {"resourceVersion": "1"}, "items": [pod]}


def port_of(worker: Worker) -> int:
    return int(worker.admin_url.rpartition(":")[2])


@asynccontextmanager
async def driven(server: Api, port: int) -> AsyncIterator[None]:
    """Have the fleet of this API server driven by a driver that has just begun."""
    settings = OperatorSettings(
        worker_image="worker:1", namespaces=("rl",), admin_port=port, poll_seconds=0.1
    )
    async with serving(server) as kube:
        await kube.create(object_path("rl", "secrets"), owned_objects.secret(FLEET, TOKEN))
        pods = PodCache(kube, settings.namespaces, lambda _: None, 60.0)
        watching = asyncio.create_task(pods.run())
        await pods.synced.wait()
        services = SharedClients(
            kube,
            pods,
            settings,
            asyncio.Semaphore(4),
            LeaseTerm(),
            SidecarCertificates(partial(apply.ca_of, kube)),
        )
        driving = asyncio.create_task(
            Reconciler(("rl", "qwen"), server.objects[PATH], services).run()
        )
        try:
            yield
        finally:
            await given_up(driving, watching)


async def test_nothing_is_done_of_what_was_planned_before_the_fleet_was_taken_over(
    fake: Worker, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine must not pass for a worker that is silent.
    monkeypatch.setattr(reconciler, "_ACQUAINT_S", 60.0)
    await subject.serve(subject.versions.first)

    async def arrive_late() -> None:
        for number, path in enumerate((paths.PREPARE_PATH, paths.UPDATE_WEIGHTS_PATH), start=1):
            fence = {"fleet": FLEET.uid, "pod": "p-0", "epoch": EARLIER, "sequence": number}
            await subject.ok(path, subject.versions.second, operation="rollout-1", fence=fence)

    server = Api(arrive_late)
    server.objects |= {PATH: raw(STATUS, 1), PODS: listed()}
    async with asyncio.timeout(30), driven(server, port_of(fake)):
        while not server.labels:  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.02)

    # Before its first write the new driver had seen the worker serve the first version.
    assert server.labels[0] == subject.versions.second
    assert server.objects[PATH]["status"]["epoch"] == EARLIER + 1


async def test_a_worker_that_has_not_answered_yet_is_shown_as_it_was_known() -> None:
    known = {"name": "qwen-0", "phase": "Quarantined", "message": "the probe differs"}
    pods = listed()
    gate = {"type": READINESS_GATE, "status": "False"}
    pods["items"][0]["status"]["conditions"] = [gate]

    async def nothing() -> None:
        pass

    server = Api(nothing)
    server.objects |= {PATH: raw({**STATUS, "workers": [known]}, 1), PODS: pods}
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    async with asyncio.timeout(30), driven(server, port):
        while server.objects[PATH]["status"]["epoch"] == EARLIER:  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.02)

    (shown,) = server.objects[PATH]["status"]["workers"]
    assert (shown["phase"], shown["message"]) == ("Quarantined", "the probe differs")
