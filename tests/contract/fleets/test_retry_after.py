"""The API server asks to be called later, as its flow control does."""

import asyncio
import time

import pytest
from aiohttp import web

from rlfleet_operator.errors import NotLeading, Retryable
from rlfleet_operator.kube import retry_after
from rlfleet_operator.kube.client import object_path
from tests.fakes.kube import FakeApi, serving

PODS = object_path("research", "pods")
POD = object_path("research", "pods", "qwen-0")


class BusyApi(FakeApi):
    """Answers the first requests with an error and Retry-After."""

    def __init__(self, status: int, *after: str) -> None:
        super().__init__()
        self.status, self.after = status, list(after)
        self.objects[POD] = {"metadata": {"name": "qwen-0"}}
        self.objects[PODS] = {"items": [], "metadata": {"resourceVersion": "1"}}

    async def handle(self, request: web.Request) -> web.Response:
        if not self.after:
            return await super().handle(request)
        self.asked.append(f"{request.method} {request.path}")
        headers, told = {"Retry-After": self.after.pop(0)}, {"message": "too many requests"}
        return web.json_response(told, status=self.status, headers=headers)


@pytest.mark.parametrize("status", [429, 503])
async def test_no_call_is_sent_before_the_time_that_the_server_asked_for(status: int) -> None:
    api = BusyApi(status, "1")
    async with serving(api) as kube:
        with pytest.raises(Retryable, match="too many requests"):
            await kube.get(POD)
        begun = time.monotonic()
        await asyncio.gather(kube.under(lambda: None).get(POD), anext(kube.pages(PODS)))
        took_s = time.monotonic() - begun

    assert len(api.asked) == 3
    assert 0.9 <= took_s < 5


async def test_it_waits_again_if_the_server_asks_again() -> None:
    api = BusyApi(429, "0", "1")
    async with serving(api) as kube:
        refused = await asyncio.gather(kube.get(POD), kube.get(POD), return_exceptions=True)
        begun = time.monotonic()
        await kube.get(POD)
        took_s = time.monotonic() - begun

    assert [type(error) for error in refused] == [Retryable, Retryable]
    assert 0.9 <= took_s < 5


@pytest.mark.parametrize("after", ["", "-5", "soon", "nan", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_what_names_no_seconds_delays_nothing(after: str) -> None:
    api = BusyApi(429, after)
    async with serving(api) as kube:
        with pytest.raises(Retryable):
            await kube.get(POD)
        async with asyncio.timeout(0.9):
            await kube.get(POD)


async def test_a_long_time_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_after, "_LONGEST_S", 0.2)
    api = BusyApi(429, "86400")
    async with serving(api) as kube:
        with pytest.raises(Retryable):
            await kube.get(POD)
        async with asyncio.timeout(0.9):
            await kube.get(POD)


async def test_whether_it_may_write_is_asked_after_the_wait() -> None:
    """The term may end while the call waits."""
    api, is_over = BusyApi(429, "1"), False

    def demand() -> None:
        if is_over:
            raise NotLeading("over")

    async with serving(api) as kube:
        leader = kube.under(demand)
        with pytest.raises(Retryable):
            await leader.patch(POD, {})
        writing = asyncio.create_task(leader.patch(POD, {}))
        await asyncio.sleep(0.1)
        is_over = True
        with pytest.raises(NotLeading):
            await writing

    assert len(api.asked) == 1
