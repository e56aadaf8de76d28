"""The operator's page of a fleet, in a real browser: behind the token, read-only, bounded."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.kubernetes import apiserver
from rlfleet_operator.trainer_api.page import STREAMS_OF_FLEET
from tests.hollow import HollowNode
from tests.integration.conftest import Fleet, until
from tests.integration.page.browser import Browser
from tests.integration.trainers import Replica, Trainer

pytestmark = pytest.mark.integration


async def open_streams(client: httpx.AsyncClient, url: str, number: int) -> list[Any]:
    """Open streams that take nothing but their head."""
    return [await client.send(client.build_request("GET", url), stream=True) for _ in range(number)]


async def test_the_page_shows_the_fleet_and_is_back_after_a_restart(
    page: Browser,
    plane: apiserver.ControlPlane,
    tmp_path: Path,
    namespace: str,
    node: HollowNode,
    fleet: Fleet,
) -> None:
    replica = Replica(plane, tmp_path / "operator.log", namespace)
    replica.start()
    await fleet.create(weightVersion="step-1", replicas=1)
    await fleet.synced()
    token = await Trainer(fleet).token()
    at = f"/fleets/{namespace}/qwen"
    try:
        await page.open(replica.url.replace("//", f"//rl:{token}@") + at)
        await page.sees("Synced", "#part-head")
        assert "Read-only: the operator never changes a spec" in await page.text("#part-actions")
        assert await page.count("button") == 0
        await page.sees("running 0", "#part-load")
        await page.run("window.isKept = true")

        replica.kill()
        await page.sees("reconnecting", "#link")
        replica.start()
        await page.sees("live", "#link")
        await fleet.patch(weightVersion="step-2")
        await page.sees("step-1 → step-2", "#part-rollout")
        await page.sees("Completed", "#part-rollout")

        assert await page.run("return window.isKept")
        assert await page.hosts() == {httpx.URL(replica.url).netloc.decode()}
        await _demand_bounds(replica, at, token)
    finally:
        replica.kill()


async def _demand_bounds(replica: Replica, at: str, token: str) -> None:
    """Check which clients are admitted, what browsers may send, how many streams there are."""
    auth = httpx.BasicAuth("anybody", token)
    async with httpx.AsyncClient(base_url=replica.url, trust_env=False, timeout=60) as client:
        for path in (f"{at}/", f"{at}/events", f"{at}/load", f"{at}/main.js", at):
            refused = await client.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["www-authenticate"].startswith("Basic "), path
        shown = await client.get(f"{at}/", auth=auth)
        assert "default-src 'none'" in shown.headers["content-security-policy"]
        assert (await client.get(f"{at}/other.js", auth=auth)).status_code == 404
        evil = {"Origin": "http://evil.example"}
        for route in ("v1/rl/pause", "v1/rl/update_weights", "pause"):
            said = await client.post(f"{at}/{route}", auth=auth, headers=evil)
            assert (said.status_code, said.json()["code"]) == (403, "FromBrowser")
    async with httpx.AsyncClient(base_url=replica.url, trust_env=False, auth=auth) as client:
        streams = await open_streams(client, f"{at}/events", STREAMS_OF_FLEET - 1)
        full = await client.get(f"{at}/events")
        assert (full.status_code, full.json()["code"]) == (503, "Unavailable")
        for one in streams:
            await one.aclose()

        async def is_free() -> bool:
            await asyncio.sleep(0.2)
            async with client.stream("GET", f"{at}/events") as again:
                return again.status_code == 200

        await until(is_free)
