"""An adapter under the model's own name, as prime-rl registers it since August 2026."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.lora.test_adapters import adapters, adapters_of, load, refused, serving, tokens
from tests.contract.lora.test_trainer_routes import PRIME_RL, UNLOAD
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, send
from tests.fakes.checkpoints import MARKER
from tests.fakes.worker import Worker

__all__ = ["adapters", "serving"]

SLASHED = "Qwen/Qwen3-0.6B"
PROMPT = list(range(40))


async def register(subject: Subject, path: Path) -> httpx.Response:
    """Load as prime-rl does."""
    body = {"lora_name": subject.model_name, "lora_path": str(path)}
    return await subject.admin.post(PRIME_RL, json=body)


async def update(subject: Subject, path: Path) -> httpx.Response:
    return await subject.admin.post("/update_weights", json={"weight_dir": str(path)})


async def answer(subject: Subject, route: str, **fields: Any) -> list[int]:
    """Ask one of the samplers' routes; returns the tokens that it made."""
    asked: dict[str, dict[str, Any]] = {
        "/v1/completions": {"prompt": PROMPT, "max_tokens": 4, "return_token_ids": True},
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": "one two"}],
            "max_tokens": 4,
            "return_token_ids": True,
        },
        "/inference/v1/generate": {"token_ids": PROMPT, "sampling_params": {"max_tokens": 4}},
    }
    reply = await subject.engine.post(route, json=asked[route] | fields)
    assert reply.status_code == 200, reply.text
    found = reply.json()["choices"][0]["token_ids"]
    assert isinstance(found, list)
    return found


ROUTES = ("/v1/completions", "/v1/chat/completions", "/inference/v1/generate")


@pytest.mark.parametrize("route", ROUTES)
async def test_it_answers_requests_that_name_the_model_and_none_without_a_name(
    serving: Subject, adapters: Path, route: str
) -> None:
    named = {"model": serving.model_name}
    base = await answer(serving, route, **named)
    replies, seen = [], [base]
    for step in ("step-1", "step-2", "step-1"):
        replies.append(await register(serving, adapters / step))
        seen.append(await answer(serving, route, **named))

    assert [reply.json()["status"] for reply in replies] == ["ok"] * 3
    assert len({tuple(one) for one in seen}) == 3
    assert seen[1] == seen[3]
    assert await answer(serving, route) == base

    gone = await serving.admin.post(UNLOAD, json={"lora_name": serving.model_name})
    assert gone.status_code == 200
    assert await answer(serving, route, **named) == base


async def test_the_list_of_models_has_the_model_once_and_replies_its_name(
    serving: Subject, adapters: Path
) -> None:
    before = (await serving.engine.get("/v1/models")).json()
    await register(serving, adapters / "step-1")
    await load(serving, adapters / "step-2", "step-2")

    listed = (await serving.engine.get("/v1/models")).json()["data"]

    assert listed[:1] == before["data"]
    assert [card["id"] for card in listed] == [serving.model_name, "poet"]
    assert (await serving.complete(max_tokens=1)).json()["model"] == serving.model_name


async def test_what_it_computed_is_found_by_no_other_and_not_by_the_model(
    serving: Subject, adapters: Path
) -> None:
    async def cached(**fields: Any) -> int:
        body = {"prompt": PROMPT, "max_tokens": 1} | fields
        reply = (await serving.engine.post("/v1/completions", json=body)).json()
        found = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(found, int)
        return found

    named = {"model": serving.model_name}
    assert (await cached(**named), await cached(**named) > 0) == (0, True)
    for step in ("step-1", "step-2"):
        await register(serving, adapters / step)
        assert (await cached(**named), await cached(**named) > 0) == (0, True)
    # The model's own work is found by it alone.
    assert await cached() > 0


async def test_workers_with_different_adapters_prove_alike(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    bare = (await serving.serve(paths.BASE_VERSION)).proof
    proofs = []
    for step in ("step-1", "step-2"):
        await register(serving, adapters / step)
        proved = (await serving.serve(serving.versions.first)).proof
        assert proved is not None
        proofs.append((proved.tokens, proved.logprobs, proved.tensors))
        assert (await adapters_of(serving))[serving.model_name].is_loaded
        again = (await serving.serve(paths.BASE_VERSION)).proof
        assert again is not None
        assert bare is not None
        assert (again.tokens, again.logprobs) == (bare.tokens, bare.logprobs)

    assert proofs[0] == proofs[1]


async def test_an_update_to_an_adapter_s_directory_is_a_swap_without_a_pause(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    base, pauses = await tokens(serving, serving.model_name), fake.engine.pauses
    replies = [await update(serving, adapters / step) for step in ("step-1", "step-2", "step-2")]

    assert [reply.json()["status"] for reply in replies] == ["ok"] * 3
    assert [reply.json()["version"] for reply in replies] == ["step-1", "step-2", "step-2"]
    assert (fake.engine.pauses, fake.engine.reloads) == (pauses, 0)
    assert fake.engine.models.loads == 2
    assert await tokens(serving, serving.model_name) != base
    report = await serving.report()
    assert (report.stage, report.proved) == (Stage.OPEN, paths.BASE_VERSION)


async def test_an_rpc_of_prime_rl_s_swaps_it_too(serving: Subject, adapters: Path) -> None:
    body = {"method": "update_weights_from_path", "args": [str(adapters / "step-1")]}

    reply = await serving.admin.post("/collective_rpc", json=body)

    assert reply.json() == {"results": [None]}
    assert (await adapters_of(serving))[serving.model_name].version == "step-1"


async def test_a_pause_and_a_resume_may_stand_around_it(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await update(serving, adapters / "step-1")
    old = await tokens(serving, serving.model_name)
    fake.engine.behaviour = replace(fake.engine.behaviour, token_s=0.05)
    frozen = asyncio.create_task(tokens(serving, serving.model_name))
    await asyncio.sleep(0.1)
    await send(PAUSE, serving)
    waiting = asyncio.create_task(tokens(serving, serving.model_name))

    reply = await update(serving, adapters / "step-2")
    assert (await serving.report()).stage is Stage.PAUSED
    await send(RESUME, serving)

    assert reply.json()["version"] == "step-2"
    assert await frozen == old
    assert await waiting == await tokens(serving, serving.model_name) != old


@pytest.mark.parametrize("is_paused", [True, False])
async def test_a_blind_resume_after_one_that_failed_is_refused(
    serving: Subject, adapters: Path, *, is_paused: bool
) -> None:
    await update(serving, adapters / "step-1")
    before = await tokens(serving, serving.model_name)
    (adapters / "step-2/adapter_model.safetensors").write_bytes(b"broken")
    if is_paused:
        await send(PAUSE, serving)

    failed = await update(serving, adapters / "step-2")
    resumed = await serving.admin.post("/resume")

    assert (failed.status_code, failed.json()["code"]) == (422, Code.CHECKPOINT_INVALID)
    assert resumed.status_code == 409
    assert "last update failed" in resumed.json()["message"]
    # The next good one mends it.
    assert (await update(serving, adapters / "step-3")).status_code == 200
    assert (await serving.admin.post("/resume")).status_code == 200
    assert await tokens(serving, serving.model_name) != before


async def test_no_other_client_loads_one_within_a_trainer_s_pause(
    serving: Subject, adapters: Path
) -> None:
    await send(PAUSE, serving)
    body = {"operation": "another", "name": "poet", "version": "step-1"}

    reply = await serving.admin.post(
        paths.ADAPTERS_PATH, json=body | {"path": str(adapters / "step-1")}
    )

    assert (reply.status_code, reply.json()["code"]) == (409, Code.BUSY)


async def test_the_same_update_twice_is_one_load(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=0.2)

    replies = await asyncio.gather(*(update(serving, adapters / "step-1") for _ in range(3)))

    assert [reply.status_code for reply in replies] == [200] * 3
    assert fake.engine.models.loads == 1


async def test_a_resume_waits_for_the_update_to_an_adapter(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=0.3)
    await send(PAUSE, serving)
    asked = asyncio.create_task(update(serving, adapters / "step-1"))
    await asyncio.sleep(0.1)

    early = await serving.admin.post("/resume")

    assert (early.status_code, early.json()["code"]) == (503, Code.BUSY)
    assert (await asked).status_code == 200
    await send(RESUME, serving)


async def test_a_configuration_that_is_shown_late_is_still_seen(
    serving: Subject, adapters: Path, weights: Path
) -> None:
    directory = weights / "step-7"
    directory.mkdir()
    asked = asyncio.create_task(update(serving, directory))
    await asyncio.sleep(0.2)
    for name in ("adapter_model.safetensors", "adapter_config.json", MARKER):
        shutil.copy(adapters / "step-1" / name, directory)

    assert (await asked).json()["version"] == "step-7"


@pytest.mark.parametrize("before", [None, "step-1"])
async def test_a_load_that_timed_out_serves_no_request_when_it_ends(
    fake: Worker, serving: Subject, adapters: Path, before: str | None
) -> None:
    name = serving.model_name
    if before is not None:
        await register(serving, adapters / before)
    old = await tokens(serving, name)
    slow = iter((1.0,))
    fake.engine.models.load_s = lambda: next(slow, 0.0)

    await refused(
        serving, Code.ADAPTER_FAILED, adapters / "step-2", "step-2", name=name, timeout_s=0.4
    )

    assert await tokens(serving, name) == old
    await asyncio.sleep(1.0)
    assert await tokens(serving, name) == old
    served = [one.version for one in (await adapters_of(serving)).values() if one.is_loaded]
    assert served == ([] if before is None else [before])


async def test_weights_that_it_would_answer_on_top_of_are_refused_to_a_trainer(
    fake: Worker, serving: Subject, adapters: Path, weights: Path
) -> None:
    await register(serving, adapters / "step-1")
    await send(PAUSE, serving)

    reply = await update(serving, weights / serving.versions.first)

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
    assert UNLOAD in reply.json()["message"]
    assert (await serving.admin.post("/resume")).status_code == 409
    await send(PAUSE, serving)
    await send(RESUME, serving)
    await serving.admin.post(UNLOAD, json={"lora_name": serving.model_name})
    assert (await update(serving, weights / serving.versions.first)).status_code == 200
    assert fake.engine.reloads == 1


async def restarted(fake: Worker, subject: Subject, adapters: Path) -> list[int]:
    """Load an adapter under the model's name, and restart the engine; returns its answer before."""
    await register(subject, adapters / "step-1")
    before = await tokens(subject, subject.model_name)
    await fake.restart_engine()
    await settled(fake, lambda found: found.stage is Stage.CLOSED)
    return before


async def test_it_is_there_when_a_new_start_of_the_engine_serves(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    before = await restarted(fake, serving, adapters)

    await serving.serve(paths.BASE_VERSION)

    assert await tokens(serving, serving.model_name) == before


async def test_the_model_does_not_answer_in_its_place_when_it_does_not_come_back(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    before = await restarted(fake, serving, adapters)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapters_off=True)
    await serving.ok(paths.PREPARE_PATH, paths.BASE_VERSION)

    problem = await serving.refused(
        Code.RESUME_FAILED, paths.UPDATE_WEIGHTS_PATH, paths.BASE_VERSION
    )

    assert "step-1" in problem.message
    assert not fake.engine.gate.is_open
    assert not await serving.is_ready()
    # When the engine takes it, the worker serves again.
    fake.engine.behaviour = replace(fake.engine.behaviour, adapters_off=False)
    await serving.ok(paths.UPDATE_WEIGHTS_PATH, paths.BASE_VERSION)
    assert await tokens(serving, serving.model_name) == before


class TestASlash:
    """A model's name that no directory can have."""

    @pytest.fixture
    def identity(self) -> dict[str, str]:
        return {"model_name": SLASHED}

    @pytest.fixture
    def slashed(self, fake: Worker, serving: Subject) -> Subject:
        fake.engine.models.base = SLASHED
        return replace(serving, model_name=SLASHED)

    async def test_a_model_s_name_with_a_slash_is_led_and_kept(
        self, fake: Worker, slashed: Subject, adapters: Path
    ) -> None:
        base = await tokens(slashed, SLASHED)
        for step in ("step-1", "step-2"):
            assert (await register(slashed, adapters / step)).status_code == 200
        after = await tokens(slashed, SLASHED)
        assert after != base

        await fake.stop_sidecar()
        shutil.rmtree(adapters)
        await fake.start_sidecar()
        await settled(fake, lambda found: bool(found.adapters) and found.adapters[0].is_loaded)
        await fake.restart_engine()
        fake.engine.models.base = SLASHED
        await settled(fake, lambda found: found.stage is Stage.CLOSED)
        async with fake.client() as admin:
            await replace(slashed, admin=admin).serve(paths.BASE_VERSION)
        assert await tokens(slashed, SLASHED) == after
