"""A version holds what the engine read when it booted, and need not hold what it ignored."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject, Versions, client_of
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import SHAPES, write_file
from tests.fakes.worker import Worker
from tests.journals import journal_of

DRAFTER = {"mtp.fc.weight": (8, 16), "mtp.norm.weight": (8,)}


@pytest.fixture
def model(model: Path) -> Path:
    """Make of it one whose files list what most engines have no use for."""
    write_file(model / "model.safetensors", SHAPES | DRAFTER, 0)
    return model


def needs_of(pod: Path) -> dict[str, object] | None:
    """Return what the journal holds of the boot."""
    needs: dict[str, object] | None = journal_of(pod / "state")["needs"]
    return needs


@asynccontextmanager
async def serving(model: Path, weights: Path, pod: Path, **lies: Any) -> AsyncIterator[Subject]:
    """Run a worker whose engine has answered a first time."""
    settings: dict[str, Any] = {"engine_port": 0, "admin_port": 0, "poll_s": 0.05}
    worker = Worker(
        "127.0.0.1", model, weights, TOKEN, pod, behaviour=Behaviour(**lies), **settings
    )
    async with worker, worker.client() as admin, client_of(worker.engine_url) as engine:
        await settled(worker, lambda report: report.stage is Stage.CLOSED)
        yield Subject(admin, engine, "fake", Versions())


async def test_a_version_may_lack_what_the_engine_ignored(
    tmp_path: Path, model: Path, weights: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod", drafts_nothing=True) as subject:
        assert (needs_of(tmp_path / "pod") or {})["optional"] == sorted(DRAFTER)
        assert (await subject.serve("step-1")).proved == "step-1"


async def test_a_drafter_s_tensors_are_demanded_where_one_read_them(
    tmp_path: Path, model: Path, weights: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod") as subject:
        assert (needs_of(tmp_path / "pod") or {})["optional"] == []
        problem = await subject.refused(Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, "step-1")

    assert "2 missing tensors: mtp.fc.weight, mtp.norm.weight" in problem.message


async def test_a_version_may_hold_a_drafter_that_the_base_model_lacks(
    tmp_path: Path, model: Path, weights: Path
) -> None:
    """A trainer saves its own base's layers, and transformers writes a base without them."""
    write_file(model / "model.safetensors", SHAPES, 0)
    write_file(weights / "step-1" / "model.safetensors", SHAPES | DRAFTER, 1)

    async with serving(model, weights, tmp_path / "pod") as subject:
        assert (await subject.serve("step-1")).proved == "step-1"


async def test_without_the_engine_s_word_the_usual_names_are_taken_for_ignored(
    tmp_path: Path, model: Path, weights: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod", boot_unseen=True) as subject:
        assert needs_of(tmp_path / "pod") is None
        assert (await subject.serve("step-1")).proved == "step-1"
