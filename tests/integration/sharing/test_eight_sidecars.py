"""Eight sidecars, as processes, of one store: what leaves it is counted by the store."""

import asyncio
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from math import prod
from pathlib import Path

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_operator.core.sharing.lines import Member, supplies
from rlfleet_operator.core.sharing.supplied import address_of
from tests.fakes.checkpoints import BF16_BYTES, CONFIG, write_file
from tests.fakes.file_server import FileServer, serving

pytestmark = pytest.mark.integration
WORKERS = 8
SHAPES = {f"model.layers.{n}.mlp.up_proj.weight": (32 * 1024, 1024) for n in range(4)}
SIZE = sum(prod(shape) * BF16_BYTES for shape in SHAPES.values())
MOST = 1.1
TOKEN = "the-fleet-token"
BLOCK = f"127.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}"
"""Of loopback; another run on this machine has another one."""
HOSTS = [f"{BLOCK}.{n + 1}" for n in range(WORKERS)]


def write(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_file(folder / "model.safetensors", SHAPES, seed)
    (folder / "STABLE").touch()
    return folder


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileServer]:
    write(tmp_path / "store" / "run" / "step-1", 1)
    with serving(tmp_path / "store") as running:
        yield running
    shutil.rmtree(tmp_path / "store")


@pytest.fixture
async def workers(tmp_path: Path, store: FileServer) -> AsyncIterator[httpx.AsyncClient]:
    """Start the sidecars; their engines are never up."""
    model = write(tmp_path / "model", 0)
    (tmp_path / "token").write_text(TOKEN)
    shared = {
        "MODEL_NAME": "fake",
        "MODEL_PATH": str(model),
        "WEIGHTS_SOURCE": f"{store.url}/run/{{version}}",
        "TOKEN_FILE": str(tmp_path / "token"),
        "CACHE_SPARE": "0",
        "ENGINE_URL": f"http://{BLOCK}.99:8000",
    }
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with AsyncExitStack() as stack:
        client = httpx.AsyncClient(headers=headers, timeout=240, trust_env=False)
        await stack.enter_async_context(client)
        for host in HOSTS:
            own = {
                "HOST": host,
                "STATE_DIR": str(tmp_path / host / "state"),
                "CACHE_DIR": str(tmp_path / host / "cache"),
            }
            await stack.enter_async_context(process(shared | own))
        await asyncio.gather(*(until_alive(client, host) for host in HOSTS))
        yield client
    for host in HOSTS:
        shutil.rmtree(tmp_path / host)


@asynccontextmanager
async def process(settings: Mapping[str, str]) -> AsyncIterator[None]:
    variables = {f"RLFLEET_{name}": value for name, value in settings.items()}
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "rlfleet_sidecar",
        "--log-level",
        "ERROR",
        env={"PYTHONPATH": os.pathsep.join(sys.path), **variables},
    )
    try:
        yield
    finally:
        if running.returncode is None:
            running.terminate()
        await running.wait()


async def until_alive(client: httpx.AsyncClient, host: str) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                await client.get(f"http://{host}:{paths.ADMIN_PORT}{paths.LIVE_PATH}")
            except httpx.TransportError:
                await asyncio.sleep(0.1)
            else:
                return


async def prepared(client: httpx.AsyncClient, *, shares: bool) -> list[WorkerReport]:
    """Let all prepare the version at once, as the operator does."""
    members = [
        Member(host, address_of(host, paths.ADMIN_PORT), ordinal=n) for n, host in enumerate(HOSTS)
    ]
    plan = supplies(members)

    async def prepare(host: str) -> WorkerReport:
        request = PrepareRequest(
            operation="rollout-1",
            version="step-1",
            timeout_s=200,
            supply=plan[host] if shares else None,
        )
        url = f"http://{host}:{paths.ADMIN_PORT}{paths.PREPARE_PATH}"
        reply = await client.post(url, json=request.model_dump(mode="json", exclude_none=True))
        assert reply.status_code == 200, reply.text
        return WorkerReport.model_validate_json(reply.content)

    return await asyncio.gather(*map(prepare, HOSTS))


async def test_eight_workers_of_a_node_read_the_store_once(
    workers: httpx.AsyncClient, store: FileServer, tmp_path: Path
) -> None:
    before = store.sent

    reports = await prepared(workers, shares=True)

    copies = (store.sent - before) / SIZE
    assert {report.prepared for report in reports} == {"step-1"}
    assert copies <= MOST
    original = (tmp_path / "store" / "run" / "step-1" / "model.safetensors").read_bytes()
    for host in HOSTS:
        copy = tmp_path / host / "cache" / "versions" / "step-1" / "model.safetensors"
        assert copy.read_bytes() == original


async def test_without_sharing_each_reads_all(
    workers: httpx.AsyncClient, store: FileServer
) -> None:
    before = store.sent

    await prepared(workers, shares=False)

    assert (store.sent - before) / SIZE >= WORKERS
