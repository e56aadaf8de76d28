"""What the network can reach of a worker: of every route that the running engine has."""

import asyncio
import contextlib
import http.client
import json
import re
import time
from collections.abc import Iterable

import httpx
import pytest

from dev.images import names
from dev.shell import Shell
from rlfleet_contract import paths
from tests.e2e.scenario import Fleet
from tests.tricks import HEADS, status, tricks_with

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

METHODS = ("GET", "POST", "PUT", "DELETE")
DATA = re.compile(
    r"/(v1/(?!(un)?load_lora_adapter$)[^/]+(/[^/]+)*"
    r"|inference/v1/generate|tokenize|detokenize|health|liveness|metrics|version)"
)
"""The routes that are promised; in other words than the guard's own."""
NOT_IN_THE_TABLE = (
    "/openapi.json",
    "/docs",
    "/docs/oauth2-redirect",
    "/redoc",
    "/metrics/",
    "/adapters",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/nowhere",
    "/",
    paths.GATE_PATH,
    paths.EXIT_PATH,
)
"""Mounted, hidden from the schema, there only with some flags, or our own."""
KNOWN = (
    "/pause",
    "/collective_rpc",
    "/update_weights",
    "/v1/completions",
    "/inference/v1/generate",
)
"""Without these it is not vLLM's table that was read."""
TRICKED = ("/pause", "/collective_rpc", "/reset_prefix_cache", "/is_paused", paths.EXIT_PATH)


@pytest.fixture
def table(fleet: Fleet, shell: Shell) -> dict[str, set[str]]:
    """The engine's own routes with their methods, as it reports them within the pod."""
    assert fleet.name
    told = json.loads(within(shell, "/openapi.json"))
    found = {
        re.sub(r"{[^}]*}", "x", path): {method.upper() for method in methods}
        for path, methods in told["paths"].items()
    }
    assert set(KNOWN) <= set(found), sorted(found)
    return found


@pytest.mark.release
def test_every_route_of_the_engine_is_a_data_route_or_not_there(
    fleet: Fleet, shell: Shell, table: dict[str, set[str]]
) -> None:
    hidden = {path for path in table if DATA.fullmatch(path) is None} | set(NOT_IN_THE_TABLE)

    with httpx.Client(base_url=f"http://{address(fleet)}:8000", timeout=30) as client:
        shown = {
            (method, path): reply.status_code
            for path in sorted(hidden)
            for method in table.get(path, set()) | set(METHODS)
            if not is_unknown(reply := client.request(method, path))
        }
        missing = {
            (method, path): client.request(method, path).text
            for path in sorted(set(table) - hidden)
            for method in table[path]
            # With no body: vLLM refuses it, and nothing is computed.
            if is_unknown(client.request(method, path))
        }

    assert shown == {}
    assert missing == {}
    assert len(hidden) > len(TRICKED)
    assert is_running(shell)


@pytest.mark.parametrize("path", TRICKED)
async def test_no_trick_leads_to_a_control_route(fleet: Fleet, shell: Shell, path: str) -> None:
    requests = [
        (f"{method} {target}", head)
        for target in tricks_with(path)
        for head in HEADS
        for method in ("GET", "POST")
    ]

    seen = await statuses(address(fleet), requests)

    assert {told: code for told, code in seen.items() if code not in {0, 400, 404}} == {}
    assert is_running(shell)


async def test_a_data_route_is_reached_whatever_the_host(fleet: Fleet) -> None:
    seen = await statuses(address(fleet), [("GET /v1/models", head) for head in HEADS])

    assert set(seen.values()) == {200}


@pytest.mark.release
def test_data_routes_are_there(fleet: Fleet) -> None:
    url = f"http://{address(fleet)}:8000"

    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/liveness").json() == {"status": "ok"}
    assert "vllm:" in httpx.get(f"{url}/metrics").text
    assert httpx.get(f"{url}/version").json()["version"].startswith(names.chosen())
    assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "qwen"
    body = {"model": "qwen", "messages": [{"role": "user", "content": "one"}], "max_tokens": 4}
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert (reply.status_code, reply.headers[paths.VERSION_HEADER]) == (200, "step-0")


def test_a_connection_that_lay_idle_for_long_is_still_there(fleet: Fleet) -> None:
    connection = http.client.HTTPConnection(address(fleet), 8000, timeout=60)
    with contextlib.closing(connection):
        for idle_s in (7, 0):
            connection.request("GET", "/v1/models")
            assert connection.getresponse().read()
            used = connection.sock
            time.sleep(idle_s)
        assert connection.sock is used


@pytest.mark.parametrize("path", [paths.STATE_PATH, paths.RESUME_PATH, "/", "/nowhere"])
def test_the_sidecar_answers_strangers_nothing(fleet: Fleet, path: str) -> None:
    reply = httpx.get(f"http://{address(fleet)}:8090{path}")

    assert reply.status_code == 401


async def statuses(host: str, requests: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Send raw requests, one after the other."""
    async with asyncio.timeout(200):
        return {(line, head): await status(host, 8000, line, head) for line, head in requests}


def is_unknown(reply: httpx.Response) -> bool:
    """Return whether it is what the engine answers for an unknown path."""
    return (reply.status_code, reply.content) == (404, b'{"detail":"Not Found"}')


def is_running(shell: Shell) -> bool:
    """Return whether the engine is neither paused nor behind a closed gate."""
    paused = json.loads(within(shell, "/is_paused"))["is_paused"]
    return paused is False and json.loads(within(shell, paths.GATE_PATH))["is_open"] is True


def within(shell: Shell, path: str) -> str:
    """Ask the first worker's engine from within its pod."""
    code = (
        "import urllib.request as r\n"
        f"print(r.urlopen('http://127.0.0.1:8000{path}', timeout=30).read().decode())\n"
    )
    return shell.kubectl("exec", "qwen-0", "-c", "engine", "--", "python3", "-c", code)


def address(fleet: Fleet) -> str:
    """Return the address of the first worker."""
    return str(fleet.pods()["qwen-0"]["status"]["podIP"])
