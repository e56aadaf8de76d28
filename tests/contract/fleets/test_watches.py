"""What follows the API server's objects outlives whatever answers in its place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio import client

from rlfleet_operator.errors import OperatorError, Unreachable
from rlfleet_operator.kube.client import KubeClient
from rlfleet_operator.kube.pod_cache import PodCache
from tests.patience import given_up

_LIST = b'{"metadata":{"resourceVersion":"5"},"items":[]}'
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


def _whole(body: bytes) -> bytes:
    return _OK % (len(body), body)


@asynccontextmanager
async def _answering(
    listed: bytes, watched: bytes, *, counts_watches: bool = False
) -> AsyncIterator[tuple[KubeClient, asyncio.Event]]:
    """Serve these bytes, hang up after each; enter with a connection and what a list sets again.

    With ``counts_watches`` a watch sets it.
    """
    counted, is_again = 0, asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal counted
        head = await reader.readuntil(b"\r\n\r\n")
        is_watch = b"watch=1" in head
        writer.write(watched if is_watch else listed)
        counted += is_watch == counts_watches
        if counted > 1:
            is_again.set()
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    settings = client.Configuration()
    settings.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    kube = KubeClient(client.ApiClient(settings))
    try:
        yield kube, is_again
    finally:
        await kube.close()
        server.close()


_BROKEN = (
    b'HTTP/1.1 500 Internal\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"'
)
_PAGE = b"<html>maintenance</html>"


@pytest.mark.parametrize(
    ("listed", "watched"),
    [
        (_whole(_LIST), _BROKEN),
        (_whole(_LIST), _whole(_PAGE + b"\n")),
        (_whole(_LIST), _whole(b"[]\n")),
        (_whole(_LIST), _whole(b'{"type":"ADDED"}\n')),
        (_whole(_LIST), _whole(b'{"type":"ADDED","object":{}}\n')),
        (_whole(_LIST), _whole(b'{"type":"ADDED","object":{"metadata":{}}}\n')),
        (_whole(_LIST), _whole(b'{"type":"DELETED","object":{"metadata":{"name":7}}}\n')),
        (_whole(b'{"metadata":{},"items":[]}'), b""),
        (_whole(b'{"metadata":{"resourceVersion":"5"},"items":[{}]}'), b""),
        (_BROKEN, b""),
        (_whole(_PAGE), b""),
        (_whole(b"[]"), b""),
        (_whole(b'{"kind":"Status"}'), b""),
    ],
)
async def test_the_watch_of_pods_continues_after_any_answer(
    listed: bytes, watched: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlfleet_operator.kube.pod_cache._PAUSE_S", 0.01)
    async with _answering(listed, watched) as (kube, listed_again):
        running = asyncio.create_task(PodCache(kube, (), lambda _key: None, 5).run())
        again = asyncio.create_task(listed_again.wait())
        await asyncio.wait({running, again}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.exception()
        assert listed_again.is_set()
        await given_up(running, again)


_GONE = b"HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_EXPIRED = b'{"type":"ERROR","object":{"code":410,"message":"too old resource version"}}\n'


@pytest.mark.parametrize(
    ("listed", "watched"),
    [(_whole(_LIST), _GONE), (_whole(_LIST), _whole(_EXPIRED)), (_GONE, b"")],
)
async def test_pods_are_not_listed_without_a_pause_while_each_watch_expires(
    listed: bytes, watched: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlfleet_operator.kube.pod_cache._PAUSE_S", 60.0)
    async with _answering(listed, watched) as (kube, listed_again):
        running = asyncio.create_task(PodCache(kube, (), lambda _key: None, 5).run())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(listed_again.wait(), 0.5)
        assert not running.done()
        await given_up(running)


_BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}}\n'


@pytest.mark.parametrize("watched", [_whole(b""), _whole(_BOOKMARK)])
async def test_pods_are_not_watched_without_a_pause_while_each_watch_ends_at_once(
    watched: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlfleet_operator.kube.pod_cache._PAUSE_S", 60.0)
    async with _answering(_whole(_LIST), watched, counts_watches=True) as (kube, watched_again):
        running = asyncio.create_task(PodCache(kube, (), lambda _key: None, 5).run())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watched_again.wait(), 0.5)
        assert not running.done()
        await given_up(running)


@pytest.mark.parametrize("listed", [_whole(_PAGE), _whole(b"7"), _whole(b"")])
async def test_an_answer_that_is_no_object_is_silence(listed: bytes) -> None:
    async with _answering(listed, b"") as (kube, _):
        with pytest.raises(Unreachable, match="expected a JSON object"):
            await kube.get("/api/v1/pods")


async def test_an_error_whose_body_breaks_off_keeps_its_status() -> None:
    async with _answering(_BROKEN, b"") as (kube, _):
        with pytest.raises(OperatorError, match="500 GET"):
            await kube.get("/api/v1/pods")
