"""Deltas that a trainer publishes become versions of a worker, and bad ones pause no worker."""

import asyncio
import shutil
from pathlib import Path

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.contract.versions.test_prepare import cache_of, serving
from tests.fakes.checkpoints import write_version
from tests.fakes.deltas.indexed import write_chain, write_delta
from tests.fakes.deltas.skyrl import write_skyrl
from tests.fakes.deltas.spoilt import SPOILED
from tests.fakes.deltas.tensors import Tensors, tensors_of, trained
from tests.fakes.worker import Worker

ONE, TWO, THREE = (f"weight_v{number:06d}" for number in (1, 2, 3))


@pytest.fixture
def base(model: Path) -> Tensors:
    return tensors_of(model)


def staged(tmp_path: Path, version: str) -> Tensors:
    return tensors_of(cache_of(tmp_path) / version)


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
async def test_a_chain_is_served_version_by_version(
    encoding: str, subject: Subject, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    states = write_chain(weights, base, 3, encoding=encoding, shards=2)

    for version, tensors in zip((ONE, TWO, THREE), states[1:], strict=True):
        report = await subject.serve(version)
        assert (report.proved, report.stage) == (version, Stage.OPEN)
        assert staged(tmp_path, version) == tensors


async def test_a_late_joiner_folds_the_whole_chain(
    subject: Subject, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    states = write_chain(weights, base, 3)

    assert (await subject.serve(THREE)).proved == THREE
    assert staged(tmp_path, THREE) == states[3]
    assert (await subject.report()).staged == [THREE]


async def test_a_chain_and_a_full_copy_of_the_same_weights_have_one_digest(
    subject: Subject, base: Tensors, weights: Path
) -> None:
    full = tensors_of(write_version(weights, TWO, seed=9))
    write_delta(weights, 3, full, trained(full, 3))
    write_delta(weights, 4, trained(full, 3), full)

    first = await subject.serve(TWO)
    last = await subject.serve("weight_v000004")

    assert first.proof is not None
    assert last.proof is not None
    assert last.proof.tensors == first.proof.tensors
    assert (first.proved, last.proved) == (TWO, "weight_v000004")


async def test_a_delta_that_changes_nothing_is_proved_as_a_version(
    subject: Subject, base: Tensors, weights: Path
) -> None:
    states = write_chain(weights, base, 1)
    write_delta(weights, 2, states[1], states[1])
    before = await subject.serve(ONE)

    after = await subject.serve(TWO)

    assert before.proof is not None
    assert after.proof is not None
    assert (after.proved, after.proof.tensors) == (TWO, before.proof.tensors)


async def test_bad_deltas_are_rejected_and_no_worker_is_paused(
    fake: Worker, subject: Subject, base: Tensors, weights: Path
) -> None:
    served = await subject.serve(subject.versions.first)
    pauses = fake.engine.pauses
    expected: dict[str, str] = {}
    found: dict[str, str] = {}
    for way, (code, words, spoil) in SPOILED.items():
        shutil.rmtree(weights / ONE, ignore_errors=True)
        spoil(write_delta(weights, 1, base, trained(base, 1)))
        reply = await subject.send(paths.PREPARE_PATH, ONE, wait_s=0)
        problem = reply.json()
        expected[way], found[way] = code, problem["code"]
        assert words in problem["message"], way
        assert "; " in problem["message"], way

    assert found == expected
    report = await subject.report()
    assert (report.stage, report.proved) == (Stage.OPEN, served.proved)
    assert (fake.engine.pauses, report.staged) == (pauses, served.staged)
    write_delta(weights, 1, base, trained(base, 1))
    assert (await subject.serve(ONE)).proved == ONE


async def test_a_missing_base_is_waited_for_and_named(
    fake: Worker, subject: Subject, base: Tensors, weights: Path
) -> None:
    write_chain(weights, base, 2)
    shutil.move(weights / ONE, weights.parent / "elsewhere")

    problem = await subject.refused(Code.CHECKPOINT_INCOMPLETE, paths.PREPARE_PATH, TWO, wait_s=0)
    call = asyncio.create_task(subject.send(paths.PREPARE_PATH, TWO))
    await settled(fake, lambda r: bool(r.progress and r.progress.waiting_for))
    shutil.move(weights.parent / "elsewhere", weights / ONE)

    assert f"{ONE} does not exist, of which {TWO} is a delta" in problem.message
    assert (await call).status_code == 200
    assert (await subject.ok(paths.UPDATE_WEIGHTS_PATH, TWO)).proved == TWO


async def test_a_delta_is_waited_for_until_its_index_is_there(
    fake: Worker, subject: Subject, base: Tensors, weights: Path
) -> None:
    directory = write_delta(weights, 1, base, trained(base, 1))
    index = directory / "model.safetensors.index.json"
    index.rename(weights / "index")
    call = asyncio.create_task(subject.send(paths.PREPARE_PATH, ONE))
    waiting = await settled(fake, lambda r: bool(r.progress and r.progress.waiting_for))

    (weights / "index").rename(index)

    assert (await call).status_code == 200
    assert waiting.progress is not None
    assert "no model.safetensors.index.json" in (waiting.progress.waiting_for or "")


async def test_a_restarted_trainer_s_numbers_are_prepared_again(
    subject: Subject, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    write_chain(weights, base, 2)
    await subject.ok(paths.PREPARE_PATH, TWO)
    for version in (ONE, TWO):
        shutil.rmtree(weights / version)
    other = trained(base, 50)
    write_delta(weights, 1, base, other)
    write_delta(weights, 2, other, trained(other, 51))

    assert (await subject.serve(TWO)).proved == TWO
    assert staged(tmp_path, TWO) == trained(other, 51)


async def test_a_number_that_was_served_is_not_served_with_other_weights(
    fake: Worker, subject: Subject, base: Tensors, weights: Path
) -> None:
    write_chain(weights, base, 1)
    await subject.serve(ONE)
    pauses = fake.engine.pauses
    write_delta(weights, 1, base, trained(base, 50))
    await subject.ok(paths.PREPARE_PATH, ONE)

    problem = await subject.refused(Code.CHECKPOINT_INVALID, paths.UPDATE_WEIGHTS_PATH, ONE)

    assert "was written again after its proof" in problem.message
    assert fake.engine.pauses == pauses


async def test_a_sidecar_that_restarts_reads_only_the_new_delta(
    fake: Worker, subject: Subject, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    states = write_chain(weights, base, 3)
    await subject.serve(TWO)
    await fake.stop_sidecar()
    (cache_of(tmp_path) / ".draft-of-a-sidecar-that-died").mkdir()
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.OPEN)
    # What the copy of version 2 makes unnecessary may be broken by now.
    (weights / ONE / "model-00000-of-00001.safetensors").write_bytes(b"")

    assert (await subject.serve(THREE)).proved == THREE
    assert staged(tmp_path, THREE) == states[3]
    assert {path.name for path in cache_of(tmp_path).iterdir()} == {TWO, THREE}


async def test_skyrl_s_deltas_are_served(
    subject: Subject, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    states = write_chain(weights, base, 2, write=write_skyrl)

    report = await subject.serve("delta-00000002")

    assert report.proved == "delta-00000002"
    assert staged(tmp_path, "delta-00000002") == states[2]


async def test_a_rollback_to_a_delta_needs_no_volume(
    subject: Subject, base: Tensors, weights: Path
) -> None:
    write_chain(weights, base, 2)
    await subject.serve(ONE)
    await subject.serve(TWO)
    shutil.rmtree(weights)

    assert (await subject.serve(ONE)).proved == ONE


async def test_stitch_s_pointer_decides_what_is_published(
    model: Path, base: Tensors, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write_chain(store / "updates", base, 2)
    (store / "latest").write_text(f"run-1/{ONE}")
    async with serving(model, store / "updates", tmp_path / "pod") as subject:
        await subject.serve(ONE)
        early = await subject.refused(Code.CHECKPOINT_INCOMPLETE, paths.PREPARE_PATH, TWO, wait_s=0)
        (store / "latest").write_text(f"run-1/{TWO}")
        assert (await subject.serve(TWO)).proved == TWO
    assert f"names {ONE}, older than {TWO}" in early.message


async def test_a_copy_of_another_run_of_stitch_is_not_there_already(
    model: Path, base: Tensors, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write_chain(store / "updates", base, 1)
    (store / "latest").write_text(f"run-1/{ONE}")
    async with serving(model, store / "updates", tmp_path / "pod") as subject:
        await subject.serve(ONE)
        first = cache_of(tmp_path) / ONE / ".record.json"
        before = first.read_text()
        (store / "latest").write_text(f"run-2/{ONE}")
        await subject.serve(ONE)
        assert '"run":"run-1"' in before
        assert '"run":"run-2"' in first.read_text()


async def test_a_worker_without_a_cache_rejects_deltas(
    model: Path, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    write_chain(weights, base, 1)
    async with serving(model, weights, tmp_path / "pod", cache_dir=None) as subject:
        problem = await subject.refused(Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, ONE)
    assert "set spec.weights.cache.enabled to true" in problem.message
