"""An operator brings a worker the adapter that a trainer has loaded at others."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.lora.test_adapters import (
    NAME,
    adapters,
    adapters_of,
    load,
    refused,
    serving,
    tokens,
    unload,
)
from tests.contract.subject import Subject
from tests.fakes.adapters import write_adapter
from tests.fakes.worker import Worker

__all__ = ["adapters", "serving"]

FENCE = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}


@pytest.fixture
async def known(serving: Subject, adapters: Path) -> AdapterReport:
    """Return another worker's digest of step-1; this one has nothing under its name."""
    (adapter,) = (await load(serving, adapters / "step-1", "step-1")).adapters
    await unload(serving)
    assert adapter.digest is not None
    return adapter


def like(known: AdapterReport, **fields: Any) -> dict[str, Any]:
    return {"fence": FENCE, "inherited": known.digest} | fields


async def test_it_is_loaded_and_stays_its_trainer_s(
    serving: Subject, adapters: Path, known: AdapterReport
) -> None:
    base = await tokens(serving, serving.model_name)

    report = await load(serving, adapters / "step-1", "step-1", **like(known))

    (adapter,) = report.adapters
    assert (adapter.is_loaded, adapter.is_declared) == (True, False)
    assert adapter.digest == known.digest
    assert await tokens(serving, NAME) != base
    body = {"lora_name": NAME, "lora_path": str(adapters / "step-2")}
    assert (await serving.admin.post("/load_lora_adapter", json=body)).status_code == 200
    assert (await adapters_of(serving))[NAME].version == "step-2"


async def test_it_takes_no_name_that_its_trainer_has_given(
    serving: Subject, adapters: Path, known: AdapterReport
) -> None:
    await load(serving, adapters / "step-2", "step-2")

    report = await load(serving, adapters / "step-1", "step-1", **like(known))

    assert [one.version for one in report.adapters] == ["step-2"]


async def test_other_bytes_in_its_directory_are_not_taken_for_it(
    serving: Subject, adapters: Path, known: AdapterReport
) -> None:
    write_adapter(adapters / "step-1", seed=77)

    fields = like(known, operation="adapter-1")
    problem = await refused(serving, Code.DIGEST_MISMATCH, adapters / "step-1", **fields)

    adapter = (await adapters_of(serving))[NAME]
    assert known.digest is not None
    assert known.digest[:12] in problem.message
    assert (adapter.version, adapter.is_loaded, adapter.is_declared) == (None, False, False)
    assert adapter.problem is not None
    assert adapter.problem.operation == "adapter-1"
    listed = json.loads((await serving.engine.get("/v1/models")).content)["data"]
    assert [card["id"] for card in listed] == [serving.model_name]
    await load(serving, adapters / "step-1", "step-1b")


async def test_it_may_have_the_model_s_own_name_and_comes_back_with_the_engine(
    fake: Worker, serving: Subject, adapters: Path, known: AdapterReport
) -> None:
    base = await tokens(serving, serving.model_name)
    fields = like(known, name=serving.model_name)

    await load(serving, adapters / "step-1", "step-1", **fields)

    inherited = await tokens(serving, serving.model_name)
    await fake.restart_engine()
    await settled(fake, lambda found: found.stage is Stage.CLOSED)
    await serving.serve(paths.BASE_VERSION)
    assert base != inherited == await tokens(serving, serving.model_name)
