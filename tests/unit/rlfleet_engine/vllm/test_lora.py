"""What the extension does with vLLM's serving objects, asked at its control route."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.vllm import lora
from tests.fakes.adapters import ServingModels, write_adapter

BOOT = "boot-1"


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate", BOOT)


@pytest.fixture
def models() -> ServingModels:
    return ServingModels(lambda: 0.0, lambda: True)


async def ask(models: ServingModels | None, gate: Gate, **command: Any) -> tuple[int, Any]:
    """Send a command to the route, or none; returns status and body."""
    state = SimpleNamespace() if models is None else SimpleNamespace(openai_serving_models=models)
    body = json.dumps({"boot": BOOT, "name": "poet"} | command).encode()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "method": "POST" if command else "GET",
        "path": paths.ENGINE_ADAPTERS_PATH,
        "app": SimpleNamespace(state=state),
    }
    status, told = await lora.answered(scope, receive, gate)
    return status, json.loads(told)


def another_process(path: Path) -> None:
    """Have another process take part in this start of the engine."""
    code = "import pathlib, sys; from rlfleet_engine.gate.gate import Gate"
    code += "; Gate(pathlib.Path(sys.argv[1]), sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, str(path), BOOT], check=True)


async def test_each_load_has_an_internal_name_of_its_own(
    models: ServingModels, gate: Gate, tmp_path: Path
) -> None:
    inner = []
    for version in ("a", "b"):
        directory = str(write_adapter(tmp_path / version, seed=1))
        status, told = await ask(models, gate, directory=directory)
        assert (status, told["adapters"]) == (200, {"poet": directory})
        inner.append(models.lora_requests["poet"].lora_name)

    assert len(set(inner)) == 2
    assert "poet" not in inner
    assert models.model_name(models.lora_requests["poet"]) == "poet"
    assert models.model_name() == "fake"
    cards = (await models.show_available_models()).data
    assert [(card.id, card.parent) for card in cards] == [("fake", None), ("poet", "fake")]
    assert models.lora_resolver_lock == {}


async def test_the_model_s_own_name_may_be_led_and_its_card_stays_the_only_one(
    models: ServingModels, gate: Gate, tmp_path: Path
) -> None:
    models.base = "Qwen/Qwen3"
    bare = (await models.show_available_models()).data
    directory = str(write_adapter(tmp_path / "a", seed=1))

    status, told = await ask(models, gate, name="Qwen/Qwen3", directory=directory)

    assert (status, told["adapters"]) == (200, {"Qwen/Qwen3": directory})
    assert models.model_name(models.lora_requests["Qwen/Qwen3"]) == "Qwen/Qwen3"
    assert (await models.show_available_models()).data == bare
    assert (await ask(models, gate, name="Qwen/Qwen3", directory=None))[0] == 200
    assert models.lora_requests == {}


async def test_what_vllm_refuses_changes_nothing(
    models: ServingModels, gate: Gate, tmp_path: Path
) -> None:
    good = str(write_adapter(tmp_path / "good", seed=1))
    await ask(models, gate, directory=good)
    large = str(write_adapter(tmp_path / "large", seed=1, rank=16))

    status, told = await ask(models, gate, directory=large)

    assert status == 400
    assert "max_lora_rank" in told["error"]
    assert (await ask(models, gate))[1]["adapters"] == {"poet": good}
    assert models.lora_resolver_lock == {}


async def test_a_command_for_another_start_of_the_engine_is_not_carried_out(
    models: ServingModels, gate: Gate, tmp_path: Path
) -> None:
    directory = str(write_adapter(tmp_path / "good", seed=1))

    status, _ = await ask(models, gate, directory=directory, boot="boot-0")

    assert (status, models.lora_requests) == (409, {})


async def test_more_than_one_api_server_is_refused(
    models: ServingModels, gate: Gate, tmp_path: Path
) -> None:
    await asyncio.to_thread(another_process, tmp_path / "gate")
    directory = str(write_adapter(tmp_path / "good", seed=1))

    status, told = await ask(models, gate, directory=directory)

    assert status == 400
    assert "--api-server-count" in told["error"]


@pytest.mark.parametrize(
    "command",
    [
        {"name": "a/b", "directory": "/x"},
        {"name": "fake#1", "directory": "/x"},
        {"directory": "/x", "more": 1},
        {"boot": None},
    ],
)
async def test_a_malformed_command_is_refused(
    models: ServingModels, gate: Gate, command: dict[str, Any]
) -> None:
    assert (await ask(models, gate, **command))[0] == 400


async def test_an_engine_that_is_not_up_yet_says_so(gate: Gate) -> None:
    assert (await ask(None, gate, directory="/x"))[0] == 400


async def test_a_load_that_ends_late_takes_no_name_from_a_later_command(
    gate: Gate, tmp_path: Path
) -> None:
    times = iter((0.2, 0.0))
    models = ServingModels(lambda: next(times), lambda: True)
    first = str(write_adapter(tmp_path / "first", seed=1))
    second = str(write_adapter(tmp_path / "second", seed=2))
    late = asyncio.create_task(ask(models, gate, directory=first))
    await asyncio.sleep(0)
    assert (await ask(models, gate))[1]["under_way"] == ["poet"]

    assert (await ask(models, gate, directory=second))[0] == 200

    status, told = await late
    assert (status, "later command" in told["error"]) == (400, True)
    listed = (await ask(models, gate))[1]
    assert (listed["adapters"], listed["under_way"]) == ({"poet": second}, [])
    assert list(models.lora_requests) == ["poet"]


async def test_a_load_that_ends_late_brings_back_no_name_that_was_unloaded(
    gate: Gate, tmp_path: Path
) -> None:
    models = ServingModels(lambda: 0.1, lambda: True)
    late = asyncio.create_task(
        ask(models, gate, directory=str(write_adapter(tmp_path / "first", seed=1)))
    )
    await asyncio.sleep(0)

    assert (await ask(models, gate, directory=None))[0] == 200

    assert (await late)[0] == 400
    assert models.lora_requests == {}


async def test_loads_of_two_names_do_not_meet(gate: Gate, tmp_path: Path) -> None:
    models = ServingModels(lambda: 0.05, lambda: True)
    directory = str(write_adapter(tmp_path / "one", seed=1))

    both = [ask(models, gate, name=name, directory=directory) for name in ("poet", "critic")]
    await asyncio.gather(*both)

    assert set(models.lora_requests) == {"poet", "critic"}


async def test_an_adapter_of_which_vllm_ignores_modules_leaves_the_one_before(
    models: ServingModels, gate: Gate, tmp_path: Path
) -> None:
    models.targets = ["q_proj"]
    whole = str(write_adapter(tmp_path / "a", seed=1, modules=["q_proj"]))
    assert (await ask(models, gate, directory=whole))[0] == 200
    directory = str(write_adapter(tmp_path / "b", seed=2))

    status, told = await ask(models, gate, directory=directory)

    assert status == 400
    assert told["error"] == (
        f"vLLM ignores up_proj of {directory} (2 modules, such as model.layers.0.mlp.up_proj);"
        " add it to engine.args --lora-target-modules, or train without"
    )
    listed = lora.listed(
        {"app": SimpleNamespace(state=SimpleNamespace(openai_serving_models=models))}, gate
    )
    assert (listed.adapters, listed.under_way) == ({"poet": whole}, frozenset())
