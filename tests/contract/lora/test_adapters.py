"""Adapters at one worker: loaded, replaced, refused, lost and brought back."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.adapters import write_adapter
from tests.fakes.checkpoints import MARKER
from tests.fakes.worker import Worker

NAME = "poet"


@pytest.fixture
def adapters(weights: Path) -> Path:
    return weights / "adapters"


@pytest.fixture
async def serving(subject: Subject) -> Subject:
    """A worker that serves the base model."""
    await subject.serve(paths.BASE_VERSION)
    return subject


def body_of(path: Path | str, version: str, **fields: Any) -> dict[str, Any]:
    body = {"operation": uuid4().hex, "name": NAME, "version": version, "path": str(path)}
    return body | fields


async def load(subject: Subject, path: Path, version: str, **fields: Any) -> WorkerReport:
    reply = await subject.admin.post(paths.ADAPTERS_PATH, json=body_of(path, version, **fields))
    assert reply.status_code == 200, reply.text
    return WorkerReport.model_validate_json(reply.content)


async def refused(
    subject: Subject, code: Code, path: Path | str, version: str = "step-1", **fields: Any
) -> Problem:
    reply = await subject.admin.post(paths.ADAPTERS_PATH, json=body_of(path, version, **fields))
    problem = Problem.model_validate_json(reply.content)
    assert (problem.code, reply.status_code) == (code, code.status), reply.text
    assert problem.version == version
    return problem


async def unload(subject: Subject, name: str = NAME) -> WorkerReport:
    body = {"operation": uuid4().hex, "name": name, "version": "step-1"}
    reply = await subject.admin.request("DELETE", paths.ADAPTERS_PATH, json=body)
    assert reply.status_code == 200, reply.text
    return WorkerReport.model_validate_json(reply.content)


async def adapters_of(subject: Subject) -> dict[str, AdapterReport]:
    reply = await subject.admin.get(paths.ADAPTERS_PATH)
    found = [AdapterReport.model_validate(one) for one in reply.json()["adapters"]]
    return {adapter.name: adapter for adapter in found}


async def tokens(subject: Subject, model: str, **fields: Any) -> list[int]:
    reply = await subject.complete(model=model, max_tokens=4, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == model
    found = reply.json()["choices"][0]["token_ids"]
    assert isinstance(found, list)
    return found


async def test_an_adapter_answers_under_its_name_and_the_model_as_before(
    serving: Subject, adapters: Path
) -> None:
    base = await tokens(serving, serving.model_name)

    report = await load(serving, adapters / "step-1", "step-1")

    (adapter,) = report.adapters
    assert (adapter.name, adapter.version, adapter.is_loaded) == (NAME, "step-1", True)
    assert (adapter.path, adapter.problem) == (str(adapters / "step-1"), None)
    assert not adapter.is_declared
    assert report.stage is Stage.OPEN
    assert await adapters_of(serving) == {NAME: adapter}
    assert await tokens(serving, NAME) != base == await tokens(serving, serving.model_name)
    listed = (await serving.engine.get("/v1/models")).json()["data"]
    assert [(card["id"], card.get("parent"), card.get("root")) for card in listed] == [
        (serving.model_name, None, None),
        (NAME, serving.model_name, str(adapters / "step-1")),
    ]


async def test_a_swap_under_the_same_name_loses_no_request_and_mixes_none(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    old = await tokens(serving, NAME)
    fake.engine.behaviour = replace(fake.engine.behaviour, token_s=0.02, adapter_s=0.1)
    asked = [asyncio.create_task(tokens(serving, NAME)) for _ in range(4)]
    swap = asyncio.create_task(load(serving, adapters / "step-2", "step-2"))
    while not swap.done():
        asked.append(asyncio.create_task(tokens(serving, NAME)))
        await asyncio.sleep(0.01)
    asked += [asyncio.create_task(tokens(serving, NAME)) for _ in range(4)]

    answers = await asyncio.gather(*asked)

    new = await tokens(serving, NAME)
    assert new != old
    assert {tuple(answer) for answer in answers} == {tuple(old), tuple(new)}
    assert answers[:4] == [old] * 4
    assert answers[-4:] == [new] * 4
    assert (await adapters_of(serving))[NAME].version == "step-2"


async def test_what_an_adapter_computed_is_not_read_by_the_next_of_its_name(
    serving: Subject, adapters: Path
) -> None:
    prompt = list(range(40))

    async def cached() -> int:
        reply = await serving.complete(model=NAME, prompt=prompt, max_tokens=1)
        found = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(found, int)
        return found

    await load(serving, adapters / "step-1", "step-1")
    assert (await cached(), await cached() > 0) == (0, True)
    # The trainer writes the next one into the same directory.
    shutil.copy(adapters / "step-2/adapter_model.safetensors", adapters / "step-1")

    await load(serving, adapters / "step-1", "step-1-again")

    assert await cached() == 0


async def test_an_adapter_that_the_engine_refuses_leaves_the_one_before(
    serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    before = await tokens(serving, NAME)
    write_adapter(adapters / "large", seed=9, rank=16)

    problem = await refused(serving, Code.ADAPTER_FAILED, adapters / "large", "large")

    assert "max_lora_rank 8" in problem.message
    adapter = (await adapters_of(serving))[NAME]
    assert (adapter.version, adapter.is_loaded) == ("step-1", True)
    assert adapter.problem == problem
    assert await tokens(serving, NAME) == before
    again = await load(serving, adapters / "step-2", "step-2")
    assert again.adapters[0].problem is None


async def test_without_enable_lora_it_is_said(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    fake.engine.behaviour = replace(fake.engine.behaviour, adapters_off=True)

    problem = await refused(serving, Code.ADAPTER_FAILED, adapters / "step-1")

    assert "--enable-lora" in problem.message
    # Its caller got the failure; only the spec's are kept.
    assert await adapters_of(serving) == {}
    fence = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}
    await refused(serving, Code.ADAPTER_FAILED, adapters / "step-1", fence=fence)
    adapter = (await adapters_of(serving))[NAME]
    assert (adapter.version, adapter.is_loaded, adapter.is_declared) == (None, False, True)
    assert (await unload(serving)).adapters == []


async def test_an_unload_forgets_the_name_and_may_be_repeated(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")

    for _time in range(2):
        assert (await unload(serving)).adapters == []

    assert (await serving.complete(model=NAME)).status_code == 404
    assert fake.engine.models.lora_resolver_lock == {}


async def test_a_repeat_loads_nothing_again(fake: Worker, serving: Subject, adapters: Path) -> None:
    for _time in range(3):
        await load(serving, adapters / "step-1", "step-1")

    assert fake.engine.models.loads == 1


async def test_the_trainer_may_delete_what_was_copied(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    shutil.rmtree(adapters / "step-1")

    await load(serving, adapters / "step-1", "step-1")

    assert fake.engine.models.loads == 1


async def test_adapters_are_there_when_a_new_start_of_the_engine_serves(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    before = await tokens(serving, NAME)
    await fake.restart_engine()
    report = await settled(fake, lambda found: found.stage is Stage.CLOSED)
    assert not report.adapters[0].is_loaded

    report = await serving.serve(paths.BASE_VERSION)

    assert report.adapters[0].is_loaded
    assert await tokens(serving, NAME) == before


async def test_adapters_outlive_a_change_of_weights_and_a_restart_of_the_sidecar(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    await serving.serve(serving.versions.first)
    assert (await adapters_of(serving))[NAME].is_loaded
    await fake.stop_sidecar()
    await fake.start_sidecar()

    async with fake.client() as admin:
        subject = Subject(admin, serving.engine, "fake", serving.versions)
        report = await subject.until(lambda found: bool(found.adapters[0].is_loaded))

    assert report.proved == serving.versions.first
    assert fake.engine.models.loads == 1


async def test_a_copy_that_was_damaged_is_not_loaded_and_the_model_serves(
    fake: Worker, serving: Subject, adapters: Path, tmp_path: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    (copy,) = (tmp_path / "pod/cache/adapters").glob(f"{NAME}.*")
    (copy / "adapter_model.safetensors").write_bytes(b"")
    await fake.restart_engine()
    await settled(fake, lambda found: found.stage is Stage.CLOSED)

    report = await serving.serve(paths.BASE_VERSION)

    assert (report.stage, report.adapters[0].is_loaded) == (Stage.OPEN, False)
    problem = report.adapters[0].problem
    assert problem is not None
    assert problem.code is Code.CHECKPOINT_INVALID


async def test_an_adapter_that_takes_too_long_to_come_back_keeps_no_model_from_serving(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    await fake.restart_engine()
    await settled(fake, lambda found: found.stage is Stage.CLOSED)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=4)

    await serving.ok(paths.PREPARE_PATH, paths.BASE_VERSION)
    report = await serving.ok(
        paths.UPDATE_WEIGHTS_PATH, paths.BASE_VERSION, timeouts={"resume_s": 1.5}
    )

    assert (report.stage, report.failure) == (Stage.OPEN, None)
    (adapter,) = report.adapters
    assert not adapter.is_loaded
    assert adapter.problem is not None
    assert adapter.problem.code is Code.ADAPTER_FAILED
    # The engine ends what it began, and that is seen.
    await settled(fake, lambda found: found.adapters[0].is_loaded)
    assert fake.engine.models.loads == 1


async def test_all_adapters_together_take_no_longer_than_one_may(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    for name in ("a", "b", "c"):
        await load(serving, adapters / "step-1", "step-1", name=name)
    await fake.restart_engine()
    await settled(fake, lambda found: found.stage is Stage.CLOSED)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=30)
    await serving.ok(paths.PREPARE_PATH, paths.BASE_VERSION)

    async with asyncio.timeout(20):
        report = await serving.ok(
            paths.UPDATE_WEIGHTS_PATH, paths.BASE_VERSION, timeouts={"resume_s": 0.5}
        )

    assert report.stage is Stage.OPEN
    assert [one.problem is not None for one in report.adapters] == [True] * 3
    assert fake.engine.models.loads == 1


async def test_a_load_that_was_given_up_takes_no_name_from_what_was_asked_for_after_it(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    before = await tokens(serving, NAME)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=1.2)
    await refused(serving, Code.ADAPTER_FAILED, adapters / "step-2", "step-2", timeout_s=0.6)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=0)

    await load(serving, adapters / "step-1", "step-1")

    await asyncio.sleep(1.0)
    assert await tokens(serving, NAME) == before
    adapter = (await adapters_of(serving))[NAME]
    assert (adapter.version, adapter.is_loaded) == ("step-1", True)


async def test_a_load_that_timed_out_and_ends_is_not_reported_as_the_adapter_before(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await load(serving, adapters / "step-1", "step-1")
    before = await tokens(serving, NAME)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=1.2)
    await refused(serving, Code.ADAPTER_FAILED, adapters / "step-2", "step-2", timeout_s=0.6)
    await settled(fake, lambda found: found.adapters[0].is_loaded)

    report = await settled(fake, lambda found: not found.adapters[0].is_loaded)

    assert report.adapters[0].version == "step-1"
    assert await tokens(serving, NAME) != before
    # Asked for again, nothing has to be loaded.
    loads = fake.engine.models.loads
    report = await load(serving, adapters / "step-2", "step-2")
    assert (report.adapters[0].is_loaded, fake.engine.models.loads) == (True, loads)


async def test_none_is_touched_within_a_change_of_weights(serving: Subject, adapters: Path) -> None:
    await serving.ok(paths.PAUSE_PATH, paths.BASE_VERSION)

    problem = await refused(serving, Code.BUSY, adapters / "step-1")

    assert problem.retryable
    assert await adapters_of(serving) == {}


async def test_weights_are_not_changed_while_the_engine_loads_an_adapter(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    await serving.ok(paths.PREPARE_PATH, serving.versions.first)
    fake.engine.behaviour = replace(fake.engine.behaviour, adapter_s=0.5)
    loading = asyncio.create_task(load(serving, adapters / "step-1", "step-1"))
    async with asyncio.timeout(30):
        while fake.engine.models.loads == 0:  # noqa: ASYNC110 - it is another's
            await asyncio.sleep(0.01)

    problem = await serving.refused(Code.BUSY, paths.UPDATE_WEIGHTS_PATH, serving.versions.first)

    assert NAME in problem.message
    assert (await loading).adapters[0].is_loaded


async def test_an_adapter_that_is_not_complete_is_waited_for(
    serving: Subject, adapters: Path
) -> None:
    marker = adapters / "step-1" / MARKER
    marker.unlink()
    await refused(serving, Code.CHECKPOINT_INCOMPLETE, adapters / "step-1")
    loading = asyncio.create_task(load(serving, adapters / "step-1", "step-1", wait_s=10))
    await asyncio.sleep(0.2)
    assert not loading.done()

    marker.touch()

    assert (await loading).adapters[0].is_loaded


@pytest.mark.parametrize(
    "path", ["/etc", "{root}", "{root}/../elsewhere", "{root}/adapters/../adapters/step-1", "x"]
)
async def test_only_directories_beneath_the_weights_are_opened(
    serving: Subject, weights: Path, path: str
) -> None:
    await refused(serving, Code.PATH_REFUSED, path.format(root=weights))


async def test_a_link_is_not_followed(serving: Subject, adapters: Path) -> None:
    (adapters / "linked").symlink_to(adapters / "step-1")

    await refused(serving, Code.PATH_REFUSED, adapters / "linked")


async def test_an_adapter_of_another_model_is_rejected_before_it_reaches_the_engine(
    fake: Worker, serving: Subject, adapters: Path
) -> None:
    config = json.loads((adapters / "step-1/adapter_config.json").read_text())
    (adapters / "step-1/adapter_config.json").write_text(json.dumps(config | {"r": 5}))

    problem = await refused(serving, Code.CHECKPOINT_INVALID, adapters / "step-1")

    assert "rank 4" in problem.message
    assert fake.engine.models.loads == 0


@pytest.mark.parametrize("name", ["../poet", "Qwen/poet", "poet#1", ""])
async def test_a_name_that_is_a_path_or_has_the_engine_s_mark_is_refused(
    serving: Subject, adapters: Path, name: str
) -> None:
    body = body_of(adapters / "step-1", "step-1", name=name)

    reply = await serving.admin.post(paths.ADAPTERS_PATH, json=body)

    assert reply.status_code == 400
    assert "name" in reply.json()["message"]


async def test_the_spec_gives_no_adapter_the_model_s_name(serving: Subject, adapters: Path) -> None:
    fence = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}

    problem = await refused(
        serving, Code.ADAPTER_FAILED, adapters / "step-1", name=serving.model_name, fence=fence
    )

    assert "base model" in problem.message
