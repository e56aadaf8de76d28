"""Adapters by trainers' routes: prime-rl's, vLLM's (AReaL and others) and SkyRL's."""

import asyncio
from pathlib import Path

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from tests.contract.lora.test_adapters import (
    NAME,
    adapters,
    adapters_of,
    body_of,
    load,
    serving,
    tokens,
)
from tests.contract.subject import Subject
from tests.fakes.adapters import write_adapter
from tests.fakes.checkpoints import MARKER
from tests.fakes.worker import Worker

__all__ = ["adapters", "serving"]

PRIME_RL = "/load_lora_adapter"
VLLM = "/v1/load_lora_adapter"
SKYRL = "/skyrl/v1/load_lora_adapter"
UNLOAD = "/v1/unload_lora_adapter"
LOADS = (PRIME_RL, VLLM, SKYRL)


@pytest.fixture
def kept_short(identity: dict[str, str]) -> None:
    """Have a trainer's load wait for files, and for other changes, only briefly."""
    identity["trainer_adapter_wait_s"] = "0.3"
    identity["trainer_busy_s"] = "0.1"


async def ask(subject: Subject, route: str, path: Path, **fields: object) -> httpx.Response:
    body = {"lora_name": NAME, "lora_path": str(path)} | fields
    return await subject.admin.post(route, json=body)


async def test_prime_rl_loads_over_the_same_name(serving: Subject, adapters: Path) -> None:
    reply = await ask(serving, PRIME_RL, adapters / "step-1")
    first = await tokens(serving, NAME)
    again = await ask(serving, PRIME_RL, adapters / "step-2")

    assert (reply.status_code, reply.json()["status"]) == (200, "ok")
    assert (again.json()["status"], again.json()["version"]) == ("ok", "step-2")
    assert await tokens(serving, NAME) != first


async def test_vllm_s_clients_are_answered_in_its_words(serving: Subject, adapters: Path) -> None:
    for _time in range(2):
        reply = await ask(serving, VLLM, adapters / "step-1")
        assert reply.status_code == 200
        assert reply.text == f"Success: LoRA adapter '{NAME}' added successfully."
        assert reply.headers["content-length"] == str(len(reply.content))

    taken = await ask(serving, VLLM, adapters / "step-2")
    assert taken.status_code == 400
    assert "load_inplace" in taken.json()["message"]
    assert (await adapters_of(serving))[NAME].version == "step-1"

    assert (await ask(serving, VLLM, adapters / "step-2", load_inplace=True)).status_code == 200
    for _time in range(2):
        gone = await serving.admin.post(UNLOAD, json={"lora_name": NAME, "lora_int_id": None})
        assert gone.text == f"Success: LoRA adapter '{NAME}' removed successfully."
    assert await adapters_of(serving) == {}


async def test_skyrl_gets_the_number_of_the_loaded_adapter(
    serving: Subject, adapters: Path
) -> None:
    first = (await ask(serving, SKYRL, adapters / "step-1")).json()
    second = (await ask(serving, SKYRL, adapters / "step-2")).json()

    assert (first["status"], first["lora_name"]) == ("ok", NAME)
    assert isinstance(first["lora_int_id"], int)
    assert second["lora_int_id"] != first["lora_int_id"]


@pytest.mark.usefixtures("kept_short")
@pytest.mark.parametrize("route", LOADS)
async def test_what_is_not_there_yet_is_worth_repeating(
    serving: Subject, adapters: Path, route: str
) -> None:
    (adapters / "step-1" / MARKER).unlink()
    (adapters / "step-1" / "adapter_model.safetensors").write_bytes(b"half")

    absent = await ask(serving, route, adapters / "step-404")
    incomplete = await ask(serving, route, adapters / "step-1")

    assert (absent.status_code, absent.json()["status"]) == (404, "error")
    # prime-rl repeats a 404 or a 500 of its route, and nothing else.
    assert incomplete.status_code == (404 if route == PRIME_RL else 425)
    assert incomplete.json()["code"] == Code.CHECKPOINT_INCOMPLETE


@pytest.mark.usefixtures("kept_short")
@pytest.mark.parametrize("route", LOADS)
async def test_what_passes_by_itself_is_worth_repeating(
    serving: Subject, adapters: Path, route: str
) -> None:
    await serving.ok(paths.PAUSE_PATH, paths.BASE_VERSION)

    reply = await ask(serving, route, adapters / "step-1")

    assert (reply.status_code, reply.json()["code"]) == (500 if route == PRIME_RL else 503, "Busy")


async def test_a_load_waits_for_the_marker(serving: Subject, adapters: Path) -> None:
    (adapters / "step-1" / MARKER).unlink()
    asked = asyncio.create_task(ask(serving, PRIME_RL, adapters / "step-1"))
    await asyncio.sleep(0.2)

    (adapters / "step-1" / MARKER).touch()

    assert (await asked).status_code == 200


@pytest.mark.parametrize("route", LOADS)
async def test_a_failure_that_no_retry_fixes_is_a_4xx(
    serving: Subject, adapters: Path, route: str
) -> None:
    write_adapter(adapters / "large", seed=9, rank=16)

    large = await ask(serving, route, adapters / "large")
    outside = await ask(serving, route, Path("/etc"))
    empty = await serving.admin.post(route, json={"lora_name": NAME})

    assert (large.status_code, large.json()["code"]) == (422, Code.ADAPTER_FAILED)
    assert (outside.status_code, outside.json()["code"]) == (422, Code.PATH_REFUSED)
    assert empty.status_code == 400
    assert "lora_path" in empty.json()["message"]


@pytest.mark.parametrize("route", LOADS)
@pytest.mark.parametrize("path", ["", "/", "/" + "x" * 1100, "{adapters}/step-1\0"])
async def test_a_path_that_is_none_is_a_4xx(
    serving: Subject, adapters: Path, route: str, path: str
) -> None:
    asked = {"lora_name": NAME, "lora_path": path.format(adapters=adapters)}

    reply = await serving.admin.post(route, json=asked)

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
    assert "path" in reply.json()["message"]


@pytest.mark.parametrize("route", LOADS)
async def test_a_slash_at_the_end_makes_no_other_path(
    serving: Subject, adapters: Path, route: str
) -> None:
    for end in ("/", "", "/"):
        asked = {"lora_name": NAME, "lora_path": f"{adapters}/step-1{end}"}
        reply = await serving.admin.post(route, json=asked)
        assert reply.status_code == 200, reply.text


@pytest.mark.parametrize("route", [*LOADS, UNLOAD])
async def test_a_trainer_learns_that_the_spec_owns_the_adapters(
    serving: Subject, adapters: Path, route: str
) -> None:
    fence = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}
    await load(serving, adapters / "step-1", "step-1", fence=fence)
    assert (await adapters_of(serving))[NAME].is_declared

    reply = await ask(serving, route, adapters / "step-2")
    other = await serving.admin.post(
        route, json={"lora_name": "other", "lora_path": str(adapters / "step-2")}
    )

    assert (reply.status_code, reply.json()["code"]) == (409, Code.ADAPTERS_OWNED)
    assert "spec.adapters" in reply.json()["message"]
    assert other.status_code == 409
    assert (await adapters_of(serving))[NAME].version == "step-1"


async def test_a_deposed_operator_s_load_is_refused(serving: Subject, adapters: Path) -> None:
    fence = {"fleet": "f", "pod": "p", "epoch": 2, "sequence": 1}
    await load(serving, adapters / "step-1", "step-1", fence=fence)
    late = body_of(adapters / "step-2", "step-2", fence=fence | {"epoch": 1, "sequence": 9})

    reply = await serving.admin.post(paths.ADAPTERS_PATH, json=late)

    assert (reply.status_code, reply.json()["code"]) == (409, Code.STALE_EPOCH)
    assert (await adapters_of(serving))[NAME].version == "step-1"


@pytest.mark.parametrize("route", [*LOADS, UNLOAD])
async def test_a_stranger_is_refused(
    fake: Worker, serving: Subject, adapters: Path, route: str
) -> None:
    body = {"lora_name": NAME, "lora_path": str(adapters / "step-1")}
    async with httpx.AsyncClient(base_url=fake.admin_url) as stranger:
        reply = await stranger.post(route, json=body)

    assert reply.status_code == 401
    assert await adapters_of(serving) == {}
