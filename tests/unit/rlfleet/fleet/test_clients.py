"""What a client sends as the token, and what it says of one that it cannot send."""

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from rlfleet.fleet import AsyncFleetClient, FleetClient, FleetError
from rlfleet.fleet.settings import TOKEN_VARIABLE, lost_by

TOKEN = "s3cr3t-token"
_MOST_TURNS = 40
"""A request takes some 20 turns of the event loop."""
REFUSED = {"status": "error", "message": "no valid token", "code": "Unauthorized"}


@contextmanager
def refusing() -> Iterator[tuple[str, list[str | None]]]:
    """Serve a fleet that rejects each request; yield its URL and the headers that came."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization"))
            self.send_response(401)
            self.end_headers()
            self.wfile.write(json.dumps(REFUSED).encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/fleets/default/qwen", seen
        finally:
            server.shutdown()
            thread.join()


async def test_requests_that_are_cancelled_leave_no_connection() -> None:
    opened, closed, ended = itertools.count(1), itertools.count(1), asyncio.Event()
    begun = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        begun = next(opened)
        ended.clear()
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            await reader.read()
        writer.close()
        if next(closed) == begun:
            ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/fleets/default/qwen"
    async with server, AsyncFleetClient(url, TOKEN) as client:
        for turns in range(_MOST_TURNS):
            asking = asyncio.create_task(client.state(timeout_s=30))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            with suppress(asyncio.CancelledError, FleetError):
                await asking
        async with asyncio.timeout(60):
            await ended.wait()

    assert begun


@pytest.mark.parametrize("token", [TOKEN, f"{TOKEN}\n", f" {TOKEN}\r\n"])
async def test_a_token_is_sent_without_the_newline_of_its_file(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    with refusing() as (url, seen):
        for given in (token, None):
            with FleetClient(url, given) as client, pytest.raises(FleetError, match="no valid"):
                client.state(timeout_s=5)
            async with AsyncFleetClient(url, given) as waiting:
                with pytest.raises(FleetError, match="no valid"):
                    await waiting.state(timeout_s=5)

    assert seen == [f"Bearer {TOKEN}"] * 4


@pytest.mark.parametrize("token", ["s3cr3t-tok\u00e9n", "s3cr3t\ntoken", "s3cr3t\x00token"])
@pytest.mark.parametrize("kind", [FleetClient, AsyncFleetClient])
def test_a_token_that_no_header_can_have_is_refused_without_its_text(
    kind: type[FleetClient] | type[AsyncFleetClient], token: str
) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as refused:
        kind("http://127.0.0.1:1/fleets/default/qwen", token)

    assert "s3cr3t" not in str(refused.value)


def test_a_request_that_cannot_be_sent_is_no_lost_reply() -> None:
    """It would be repeated until the time is over, and its error quotes the header."""
    headers = {"authorization": f"{TOKEN}\n"}
    with refusing() as (url, _), pytest.raises(httpx.LocalProtocolError, match=TOKEN) as local:
        httpx.get(url, headers=headers, trust_env=False)

    with pytest.raises(FleetError, match="not valid HTTP") as refused:
        lost_by(local.value)

    assert TOKEN not in str(refused.value)
