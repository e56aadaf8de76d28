"""prime-rl in its Dynamo mode: discovery twice and before each change, then one worker's routes.

What its client demands of discovery, and what it does not, is written out here as that
client does it; a failure is terminal to it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rlfleet_contract.worker.dynamo import instance_of
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.dialects.routes.dynamo import ROUTES
from tests.contract.conftest import settled
from tests.contract.subject import Subject, client_of
from tests.contract.transcripts import RUNS, play, serves
from tests.fakes.worker import Worker

REFUSED = {"update/start_draft_weight_update", "update_weights_from_tensor"}
"""Routes that are there to say what to do instead."""
POD_UID = "0f0e0d0c-0b0a-4908-8706-050403020100"


@pytest.fixture
def identity() -> dict[str, str]:
    return {"pod_uid": POD_UID}


class DiscoveryError(Exception):
    """Its client gives up."""


@dataclass
class DynamoMode:
    """The admin side of its orchestrator; discovery_url is the sidecar's own address."""

    client: httpx.AsyncClient
    model: str

    async def pin(self) -> dict[str, Any]:
        """Look twice; what is there must be the same."""
        first, second = await self.discovered(), await self.discovered()
        if first != second:
            raise DiscoveryError("the topology moves")
        return first

    async def discovered(self) -> dict[str, Any]:
        reply = await self.client.get("/v1/rl/workers")
        found = reply.raise_for_status().json()
        workers = [worker for worker in found["workers"] if worker.get("model") == self.model]
        if found["protocol_version"] != 1 or len(workers) != 1:
            raise DiscoveryError("not exactly one worker")
        worker: dict[str, Any] = workers[0]
        if worker.get("error") or worker.get("world_size") != 1:
            raise DiscoveryError(worker.get("error") or "not one rank")
        admin = urlsplit(worker["admin_base_url"])
        if admin.hostname != self.client.base_url.host or admin.path or admin.query:
            raise DiscoveryError("the admin address is elsewhere")
        return worker

    async def update(self, directory: str) -> None:
        """Pause, load, resume; whatever fails stays as it is."""
        pinned = await self.pin()
        token = self.client.headers["authorization"]
        async with client_of(pinned["admin_base_url"], authorization=token) as admin:
            body = {"method": "update_weights_from_path", "args": [directory], "kwargs": {}}
            for path, sent, wanted in (
                ("/pause?mode=keep&clear_cache=false", None, None),
                ("/collective_rpc", body | {"timeout": 720}, {"results": [None]}),
                ("/resume", None, None),
            ):
                if await self.discovered() != pinned:
                    raise DiscoveryError("the topology has moved")
                reply = (await admin.post(path, json=sent)).raise_for_status()
                if wanted is not None and reply.json() != wanted:
                    raise DiscoveryError(reply.text)


@pytest.fixture
async def trainer(subject: Subject) -> DynamoMode:
    await subject.serve("step-1")
    return DynamoMode(subject.admin, subject.model_name)


async def test_it_finds_the_worker_at_its_own_address_and_updates_it(
    trainer: DynamoMode, subject: Subject, weights: Path
) -> None:
    found = await trainer.pin()
    await trainer.update(f"{weights}/step-2")

    await play((RUNS, serves("step-2")), subject)
    assert found["request_plane_url"] == str(subject.engine.base_url).rstrip("/")
    assert found["instance_id"] == instance_of(POD_UID) > 0


async def test_a_client_of_dynamo_s_own_routes_finds_and_calls_them(
    trainer: DynamoMode, subject: Subject, weights: Path
) -> None:
    """One that knows no admin address, as Dynamo's other clients."""
    found = await trainer.pin()
    assert found["routes"] == sorted(set(ROUTES) - REFUSED)
    assert found["system_url"] == found["admin_base_url"]

    for route, body in (
        ("pause_generation", {"mode": "keep", "clear_cache": False}),
        ("update_weights_from_disk", {"model_path": f"{weights}/step-2"}),
        ("resume_generation", {}),
    ):
        assert route in found["routes"]
        reply = await trainer.client.post(f"{found['system_url']}/engine/{route}", json=body)
        assert (reply.status_code, reply.json()["status"]) == (200, "ok"), reply.text

    await play((RUNS, serves("step-2")), subject)


async def test_a_load_that_fails_ends_it_and_leaves_the_worker_paused(
    trainer: DynamoMode, subject: Subject, weights: Path
) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        await trainer.update(f"{weights}/step-truncated")

    assert (await subject.report()).stage is Stage.PAUSED


async def test_the_host_is_the_one_that_was_asked(subject: Subject) -> None:
    for host, name in (
        ("qwen-0.qwen-workers.rl.svc:8090", "qwen-0.qwen-workers.rl.svc"),
        ("[fd00::7]:8090", "[fd00::7]"),
        ("qwen-0", "qwen-0"),
    ):
        reply = await subject.admin.get("/v1/rl/workers", headers={"host": host})

        (worker,) = reply.json()["workers"]
        assert worker["admin_base_url"] == f"http://{host}"
        assert worker["request_plane_url"] == f"http://{name}:{subject.engine.base_url.port}"


async def test_an_engine_that_is_down_is_listed_with_an_error_and_without_ranks(
    fake: Worker, trainer: DynamoMode
) -> None:
    await fake.kill_engine()
    await settled(fake, lambda report: report.stage is Stage.DOWN)

    with pytest.raises(DiscoveryError, match="the engine"):
        await trainer.discovered()


async def test_discovery_needs_the_token(fake: Worker) -> None:
    async with client_of(fake.admin_url) as stranger:
        assert (await stranger.get("/v1/rl/workers")).status_code == 401
