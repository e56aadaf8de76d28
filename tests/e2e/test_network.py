"""What the network can reach of a worker."""

import httpx
import pytest

from rlfleet_contract import api
from tests.e2e.scenario import Fleet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HIDDEN = (
    "/pause",
    "/resume",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/update_weight_version",
    "/sleep",
    "/v1/load_lora_adapter",
    "/docs",
    "/openapi.json",
    "/server_info",
    api.GATE_PATH,
    api.EXIT_PATH,
    "//pause",
    "/v1/../pause",
    "/%70ause",
)


@pytest.mark.parametrize("path", HIDDEN)
def test_control_routes_of_the_engine_are_not_there_from_the_network(
    fleet: Fleet, path: str
) -> None:
    for method in ("GET", "POST"):
        reply = httpx.request(method, f"http://{address(fleet)}:8000{path}", timeout=30)
        assert reply.status_code == 404


def test_data_routes_are_there(fleet: Fleet) -> None:
    url = f"http://{address(fleet)}:8000"

    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "qwen"
    body = {"model": "qwen", "messages": [{"role": "user", "content": "one"}], "max_tokens": 4}
    assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 200


@pytest.mark.parametrize("path", [api.STATE_PATH, api.RESUME_PATH, "/", "/nowhere"])
def test_the_sidecar_answers_strangers_nothing(fleet: Fleet, path: str) -> None:
    reply = httpx.get(f"http://{address(fleet)}:8090{path}")

    assert reply.status_code == 401


def address(fleet: Fleet) -> str:
    """Return the address of the first worker."""
    return str(fleet.pods()["qwen-0"]["status"]["podIP"])
