"""Rotations of a fleet's token, with a trainer, an operator and two slow kubelets."""

import asyncio
import base64
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from dev.kubernetes import apiserver
from rlfleet_contract import paths
from rlfleet_kubectl.errors import Exit
from rlfleet_operator.kube.client import KubeClient, object_path
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, until
from tests.integration.trainers import Replica

pytestmark = pytest.mark.integration

Run = Callable[..., Coroutine[None, None, subprocess.CompletedProcess[str]]]
LAGS_S = {"qwen-0": 0.2, "qwen-1": 6.0}
"""How late each kubelet sees a new Secret; a real one up to a minute."""


@dataclass
class Caller:
    """Asks both sidecars and the fleet API all the time, with each token that is valid."""

    fleet: Fleet
    node: HollowNode
    replica: Replica
    valid: set[str] = field(default_factory=set)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)

    async def run(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            while True:
                for token in list(self.valid):
                    for url in self.urls():
                        status = await self.status(client, url, token)
                        if token in self.valid:
                            self.answers[url, status] += 1
                await asyncio.sleep(0.05)

    def urls(self) -> list[str]:
        """Return a route of each place that checks tokens."""
        where = f"fleets/{self.fleet.namespace}/{self.fleet.name}/v1/rl/state"
        workers = [f"{self.node.worker(n).admin_url}{paths.STATE_PATH}" for n in sorted(LAGS_S)]
        return [*workers, f"{self.replica.url}/{where}"]

    async def status(self, client: httpx.AsyncClient, url: str, token: str) -> int:
        reply = await client.get(url, headers={"authorization": f"Bearer {token}"})
        return reply.status_code

    async def statuses(self, token: str) -> set[int]:
        """Return what every place says to a token."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            return {await self.status(client, url, token) for url in self.urls()}


@asynccontextmanager
async def kubelets(kube: KubeClient, node: HollowNode, secret: str) -> AsyncIterator[None]:
    """Mount the Secret's states, each worker's late by its lag."""

    async def follow(worker: str, lag_s: float) -> None:
        mounted = None
        while True:
            data = {k: decoded(v) for k, v in (await kube.get(secret))["data"].items()}
            await asyncio.sleep(lag_s)
            if data != mounted:
                node.worker(worker).give_secret(data)
                mounted = data
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(follow(*one)) for one in LAGS_S.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def replica(
    plane: apiserver.ControlPlane, tmp_path: Path, namespace: str
) -> AsyncIterator[Replica]:
    own = Replica(plane, tmp_path / "operator.log", namespace)
    own.start()
    await until(own.is_listening)
    yield own
    own.stop()


async def test_a_rotation_rejects_no_valid_token_and_the_old_one_after_its_end(
    replica: Replica, node: HollowNode, kube: KubeClient, fleet: Fleet, rlf: Run, tmp_path: Path
) -> None:
    secret = object_path(fleet.namespace, "secrets", "qwen-admin")
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    old = decoded((await kube.get(secret))["data"]["token"])
    caller = Caller(fleet, node, replica, {old})

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kubelets(kube, node, secret))
        calling = asyncio.create_task(caller.run())
        stack.callback(calling.cancel)
        rotating = asyncio.create_task(rlf("rotate-token", "qwen"))
        new = await the_new_token(kube, secret, old)
        caller.valid.add(new)
        await fleet.patch(weightVersion="step-2")
        said = (await rotating).stdout
        assert "both tokens are accepted" in said
        assert await caller.statuses(old) == await caller.statuses(new) == {200}
        caller.valid.remove(old)
        # A call that was interrupted after its write: another one waits for what it left.
        await rlf("rotate-token", "qwen", "--finish", "--timeout=1s", status=Exit.TIMED_OUT)
        finished = await rlf("rotate-token", "qwen", "--finish")
        assert "the old token is rejected" in finished.stdout
        assert await caller.statuses(old) == {401}
        assert await caller.statuses(new) == {200}

    assert (await fleet.synced())["serving"] == "step-2"
    assert {status for _, status in caller.answers} == {200}, caller.answers
    assert min(caller.answers.values()) > 20
    log = (tmp_path / "operator.log").read_text()
    assert [word for word in ("Unauthorized", old, new) if word in log + said] == []


async def test_a_worker_that_cannot_mount_the_token_stops_the_rotation(
    replica: Replica, node: HollowNode, kube: KubeClient, fleet: Fleet, rlf: Run
) -> None:
    secret = object_path(fleet.namespace, "secrets", "qwen-admin")
    await fleet.create(weightVersion="step-1")
    await fleet.synced()
    old = (await kube.get(secret))["data"]["token"]

    early = await rlf("rotate-token", "qwen", "--finish", status=Exit.FAILED)
    stuck = await rlf("rotate-token", "qwen", "--timeout=3s", status=Exit.TIMED_OUT)

    assert "no rotation to finish, it is AtRest" in early.stderr
    assert "not every worker knows revision 1 of the token within 3 s" in stuck.stderr
    found = (await kube.get(secret))["data"]
    assert (found["token"], set(found)) == (old, {"token", "next", "revision"})
    assert await Caller(fleet, node, replica).statuses(decoded(old)) == {200}


async def the_new_token(kube: KubeClient, secret: str, old: str) -> str:
    """Return the token as a trainer that mounts the Secret gets it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        token = decoded((await kube.get(secret))["data"]["token"])
        if token != old:
            return token
        await asyncio.sleep(0.05)
    raise AssertionError("the token was not replaced")


def decoded(value: str) -> str:
    return base64.b64decode(value).decode()
