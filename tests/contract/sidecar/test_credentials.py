"""Every route for everybody: generated from the application's own table of routes."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests
from starlette.routing import Route

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_sidecar.app import create_app
from rlfleet_sidecar.settings import SidecarSettings
from tests.contract.conftest import TOKEN
from tests.contract.subject import Subject, client_of
from tests.fakes.worker import Worker

OPEN = {paths.LIVE_PATH, paths.READY_PATH, "/health", "/liveness"}
STRANGERS = {
    "none": None,
    "empty": "",
    "a wrong token": "Bearer wrong",
    "no token": "Bearer",
    "a longer token": f"Bearer {TOKEN}x",
    "another scheme": f"Basic {TOKEN}",
    "no scheme": TOKEN,
    "a wrong password": f"Basic {b64encode(b'rl:wrong').decode()}",
    "the token as the user": f"Basic {b64encode(TOKEN.encode()).decode()}",
    "credentials that are cut": f"Basic {b64encode(f'rl:{TOKEN}'.encode()).decode()[:-3]}",
}
TRICKS = ("{}", "/{}", "{}/", "/.{}", "{};x", "{}%2e", "/x/..{}", "{}?a=/live", "/live{}")


def routes(settings: SidecarSettings) -> Iterator[tuple[str, str]]:
    for route in create_app(settings).routes:
        if not isinstance(route, Route):
            continue
        for method in route.methods or ():
            yield method, route.path.replace("{path:path}", "no/such/route")


@pytest.fixture
def table(tmp_path: Path) -> list[tuple[str, str]]:
    settings = SidecarSettings(model_name="m", model_path=tmp_path, state_dir=tmp_path)
    return [(method, path) for method, path in routes(settings) if path not in OPEN]


@pytest.mark.parametrize("authorization", STRANGERS.values(), ids=STRANGERS)
async def test_no_route_answers_a_stranger(
    subject: Subject, table: list[tuple[str, str]], authorization: str | None
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    async with client_of(subject.admin.base_url, **headers) as stranger:
        assert len(table) > 8
        for method, path in table:
            for trick in TRICKS:
                reply = await stranger.request(method, f"{stranger.base_url}{trick.format(path)}")
                assert reply.status_code == 401, (method, trick, path)
                assert TOKEN not in reply.text


async def by_aiohttp(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.post(url) as reply:
        return reply.status


async def by_httpx(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.post(url)).status_code


async def by_requests(url: str) -> int:
    return (await asyncio.to_thread(requests.post, url, timeout=30)).status_code


@pytest.mark.parametrize("post", [by_aiohttp, by_httpx, by_requests])
async def test_a_client_without_headers_takes_the_token_in_its_address(
    subject: Subject, post: Callable[[str], Awaitable[int]]
) -> None:
    await subject.serve(subject.versions.first)
    place = f"{subject.admin.base_url.netloc.decode()}/pause?mode=keep&clear_cache=false"

    assert await post(f"http://rl:wrong@{place}") == 401
    assert await post(f"http://{TOKEN}@{place}") == 401
    assert (await subject.report()).stage is Stage.OPEN
    assert await post(f"http://rl:{TOKEN}@{place}") == 200
    assert (await subject.report()).stage is Stage.PAUSED


async def test_a_stranger_s_body_is_not_even_parsed(subject: Subject) -> None:
    async with client_of(subject.admin.base_url) as stranger:
        reply = await stranger.post(paths.PAUSE_PATH, content=b"{")

    assert (reply.status_code, reply.json()["code"]) == (401, "Unauthorized")


async def test_health_needs_no_credentials(subject: Subject) -> None:
    async with client_of(subject.admin.base_url) as kubelet:
        assert (await kubelet.get(paths.LIVE_PATH)).status_code == 200
        assert (await kubelet.get(paths.READY_PATH)).status_code in {200, 503}


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/v1/rl/nothing", "/"])
async def test_an_unknown_route_is_not_found(subject: Subject, path: str) -> None:
    reply = await subject.admin.get(path)

    assert (reply.status_code, reply.json()["code"]) == (404, "InvalidRequest")


STEPS = {
    "at rest": ({"token": "old"}, {"old"}),
    "staged": ({"token": "old", "next": "new", "revision": "1"}, {"old", "new"}),
    "switched": ({"token": "new", "previous": "old", "revision": "2"}, {"old", "new"}),
    "finished": ({"token": "new", "revision": "3"}, {"new"}),
}
"""Of a rotation: what the Secret holds, and which tokens are accepted."""


async def test_a_rotation_rejects_no_accepted_token_and_the_old_one_after_its_end(
    fake: Worker, tmp_path: Path
) -> None:
    async with fake.client() as client:
        for step, (secret, accepted) in STEPS.items():
            fake.give_secret(secret)
            for token in ("old", "new", "older"):
                headers = {"authorization": f"Bearer {token}"}
                reply = await client.get(paths.STATE_PATH, headers=headers)
                expected = 200 if token in accepted else 401
                assert reply.status_code == expected, (step, token)
                if expected == 200:
                    assert reply.json()["token_revision"] == secret.get("revision"), step


async def test_a_watch_reports_each_step_of_a_rotation_by_itself(fake: Worker) -> None:
    def line(step: str) -> str | None:
        fake.give_secret(STEPS[step][0])
        return STEPS[step][0].get("revision")

    expected = line("staged")
    headers = {"authorization": "Bearer old"}
    async with (
        asyncio.timeout(30),
        fake.client() as client,
        client.stream("GET", paths.WATCH_PATH, headers=headers) as reply,
    ):
        seen = []
        async for text in reply.aiter_lines():
            seen.append(text and WorkerReport.model_validate_json(text).token_revision)
            if seen[-1] == expected:
                expected = line("switched" if expected == "1" else "finished")

    # It ended by itself: its token is no longer accepted.
    assert seen == ["1", "2"]


async def test_a_rotated_token_counts_at_once(fake: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pod" / "token"
    new = {"authorization": "Bearer the-next-token"}
    async with fake.client() as client:
        file.write_text("the-next-token\n")

        assert (await client.get(paths.STATE_PATH)).status_code == 401
        assert (await client.get(paths.STATE_PATH, headers=new)).status_code == 200


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["missing", "empty", "blank"])
async def test_without_a_token_every_request_is_rejected(
    fake: Worker, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "pod" / "token"
    file.unlink()
    if content is not None:
        file.write_text(content)

    async with fake.client() as client:
        for authorization in (f"Bearer {TOKEN}", "Bearer"):
            reply = await client.get(paths.STATE_PATH, headers={"authorization": authorization})
            assert reply.status_code == 401
        assert (await client.get(paths.READY_PATH)).status_code == 503
    assert fake.engine.gate.is_open is False
