"""Adapters by Dynamo's routes, as prime-rl's Dynamo mode and Dynamo's other clients ask."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from tests.contract.lora.test_adapters import NAME, adapters, adapters_of, load, serving, tokens
from tests.contract.subject import Subject
from tests.fakes.adapters import write_adapter
from tests.fakes.worker import Worker

__all__ = ["adapters", "serving"]

LOADS = ("load_lora", "update/load_lora")
UNLOADS = ("unload_lora", "update/unload_lora")


async def ask(subject: Subject, route: str, **fields: Any) -> httpx.Response:
    return await subject.admin.post(f"/engine/{route}", json={"lora_name": NAME} | fields)


def at(directory: Path) -> dict[str, str]:
    return {"uri": directory.as_uri()}


async def done(subject: Subject, route: str, **fields: Any) -> dict[str, Any]:
    """Ask as prime-rl's Dynamo mode does, which demands all of this of an answer."""
    reply = await ask(subject, route, **fields)
    found: dict[str, Any] = reply.raise_for_status().json()
    assert (found["status"], found["lora_name"]) == ("success", NAME), reply.text
    assert isinstance(found["lora_id"], int), reply.text
    assert found["lora_id"] > 0, reply.text
    return found


async def listed(subject: Subject) -> dict[str, int]:
    found: dict[str, Any] = (await ask(subject, "update/list_loras")).json()
    assert (found["status"], found["count"]) == ("success", len(found["loras"]))
    loras: dict[str, int] = found["loras"]
    return loras


@pytest.mark.parametrize("route", LOADS)
async def test_an_adapter_is_loaded_by_its_uri_and_a_repeat_loads_nothing(
    serving: Subject, adapters: Path, route: str
) -> None:
    first = await done(serving, route, source=at(adapters / "step-1"))
    again = await done(serving, route, source=at(adapters / "step-1"))

    assert (first["hot_swap"], again["hot_swap"]) == (False, False)
    assert "already loaded" in again["message"]
    assert again["lora_id"] == first["lora_id"]
    assert await listed(serving) == {NAME: first["lora_id"]}
    assert await tokens(serving, NAME) != await tokens(serving, serving.model_name)


async def test_another_directory_under_the_same_name_is_a_swap(
    serving: Subject, adapters: Path
) -> None:
    first = await done(serving, "load_lora", source=at(adapters / "step-1"))
    made = await tokens(serving, NAME)

    second = await done(serving, "load_lora", source=at(adapters / "step-2"))

    assert second["hot_swap"]
    assert second["lora_id"] != first["lora_id"]
    assert (await adapters_of(serving))[NAME].version == "step-2"
    assert await tokens(serving, NAME) != made


async def test_the_native_sidecar_s_load_swaps_only_in_place(
    serving: Subject, adapters: Path
) -> None:
    await done(serving, "update/load_lora", source=at(adapters / "step-1"))

    taken = await ask(serving, "update/load_lora", source=at(adapters / "step-2"))
    assert (taken.status_code, taken.json()["status"]) == (400, "error")
    assert "load_inplace" in taken.json()["message"]
    assert (await adapters_of(serving))[NAME].version == "step-1"

    swap = await done(
        serving, "update/load_lora", source=at(adapters / "step-2"), load_inplace=True
    )
    assert swap["hot_swap"]


@pytest.mark.parametrize("route", UNLOADS)
async def test_an_unload_names_the_adapter_and_a_second_one_is_rejected(
    serving: Subject, adapters: Path, route: str
) -> None:
    loaded = await done(serving, "load_lora", source=at(adapters / "step-1"))

    gone = await done(serving, route)
    again = await ask(serving, route)

    assert gone["lora_id"] == loaded["lora_id"]
    assert await listed(serving) == {}
    assert (again.status_code, again.json()["status"]) == (400, "error")
    assert "not found" in again.json()["message"]


async def test_a_name_with_unusual_characters_in_its_directory_is_found(
    serving: Subject, weights: Path
) -> None:
    write_adapter(weights / "adapters" / "of step 1", seed=1)

    await done(serving, "load_lora", source=at(weights / "adapters" / "of step 1"))


@pytest.fixture
def identity() -> dict[str, object]:
    """Have a trainer wait for no other change: that it waits is shown elsewhere."""
    return {"trainer_busy_s": 0}


@pytest.mark.parametrize("route", LOADS)
async def test_the_checks_are_those_of_every_load(
    serving: Subject, adapters: Path, route: str
) -> None:
    write_adapter(adapters / "large", seed=9, rank=16)

    large = await ask(serving, route, source=at(adapters / "large"))
    outside = await ask(serving, route, source={"uri": "file:///etc"})
    await serving.ok(paths.PAUSE_PATH, paths.BASE_VERSION)
    busy = await ask(serving, route, source=at(adapters / "step-1"))

    assert (large.status_code, large.json()["code"]) == (422, Code.ADAPTER_FAILED)
    assert (outside.status_code, outside.json()["code"]) == (422, Code.PATH_REFUSED)
    assert (busy.status_code, busy.json()["code"]) == (503, Code.BUSY)
    assert await adapters_of(serving) == {}


@pytest.mark.parametrize("route", [*LOADS, *UNLOADS])
async def test_a_trainer_learns_that_the_spec_owns_the_adapters_and_may_list_them(
    serving: Subject, adapters: Path, route: str
) -> None:
    fence = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}
    await load(serving, adapters / "step-1", "step-1", fence=fence)

    reply = await ask(serving, route, source=at(adapters / "step-2"))

    assert (reply.status_code, reply.json()["code"]) == (409, Code.ADAPTERS_OWNED)
    assert set(await listed(serving)) == {NAME}


@pytest.mark.parametrize("route", [*LOADS, *UNLOADS, "update/list_loras", "abort_request"])
async def test_a_stranger_is_refused(
    fake: Worker, serving: Subject, adapters: Path, route: str
) -> None:
    body = {"lora_name": NAME, "source": at(adapters / "step-1"), "request_id": "r"}
    async with httpx.AsyncClient(base_url=fake.admin_url) as stranger:
        reply = await stranger.post(f"/engine/{route}", json=body)

    assert reply.status_code == 401
    assert await adapters_of(serving) == {}
