"""Versions are waited for, checked and staged while the engine serves."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_sidecar.cache.eviction import footprint
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject, Versions, client_of
from tests.contract.transcripts import PAUSE, resume_refused, send, update
from tests.fakes.checkpoints import spoil, write_manifest, write_version
from tests.fakes.worker import Worker


def waits(report: WorkerReport) -> bool:
    return report.progress is not None and report.progress.waiting_for is not None


@asynccontextmanager
async def serving(
    model: Path, weights: Path, scratch: Path, **settings: Any
) -> AsyncIterator[Subject]:
    """Run a worker with other settings."""
    ports: dict[str, Any] = {"engine_port": 0, "admin_port": 0, "poll_s": 0.05, "probe_tokens": 2}
    worker = Worker("127.0.0.1", model, weights, TOKEN, scratch, **ports, **settings)
    async with worker, worker.client() as admin, client_of(worker.engine_url) as engine:
        await settled(worker, lambda report: report.stage is Stage.CLOSED)
        yield Subject(admin, engine, "fake", Versions())


def room_for(copies: int, weights: Path) -> int:
    return copies * footprint([(weights / "step-1" / "model.safetensors").stat().st_size])


def cache_of(tmp_path: Path) -> Path:
    return tmp_path / "pod" / "cache" / "versions"


def prepare(subject: Subject, version: str, **fields: Any) -> "asyncio.Task[Any]":
    return asyncio.create_task(subject.send(paths.PREPARE_PATH, version, **fields))


async def test_a_version_is_waited_for_until_its_marker_is_there(
    fake: Worker, subject: Subject, weights: Path
) -> None:
    before = await subject.serve(subject.versions.first)
    call = prepare(subject, "step-7")
    missing = await settled(fake, waits)
    (weights / "step-7").mkdir()
    unmarked = await settled(
        fake, lambda r: bool(r.progress and "no marker" in (r.progress.waiting_for or ""))
    )
    assert missing.progress is not None
    assert "step-7 does not exist" in (missing.progress.waiting_for or "")
    assert (unmarked.stage, unmarked.refusal) == (Stage.OPEN, None)
    assert (await subject.complete(max_tokens=1)).status_code == 200

    write_version(weights, "step-7", seed=7)

    report = WorkerReport.model_validate_json((await call).content)
    assert (report.prepared, report.proved) == ("step-7", before.proved)
    assert report.last_change == before.last_change
    assert (await subject.ok(paths.UPDATE_WEIGHTS_PATH, "step-7")).proved == "step-7"


async def test_waiting_ends_with_what_was_missing(subject: Subject) -> None:
    began = asyncio.get_running_loop().time()

    problem = await subject.refused(
        Code.VERSION_NOT_FOUND, paths.PREPARE_PATH, subject.versions.absent, timeout_s=0.7
    )

    assert 0.6 < asyncio.get_running_loop().time() - began < 30
    assert (await subject.report()).refusal == problem


async def test_what_was_staged_outlives_the_trainer_s_copy(
    fake: Worker, subject: Subject, weights: Path
) -> None:
    await subject.serve(subject.versions.first)
    version = subject.versions.second
    prepared = await subject.ok(paths.PREPARE_PATH, version)
    shutil.rmtree(weights / version)

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, version)

    assert (report.proved, report.stage) == (version, Stage.OPEN)
    assert prepared.staged == [version, subject.versions.first]
    assert prepared.prepared_bytes is not None
    assert prepared.prepared_bytes > 0
    shutil.rmtree(weights / subject.versions.first)
    assert (await subject.serve(subject.versions.first)).proved == subject.versions.first


async def test_a_restarted_sidecar_finds_what_was_staged_and_sweeps_out_the_rest(
    fake: Worker, subject: Subject, weights: Path, tmp_path: Path
) -> None:
    await subject.serve(subject.versions.first)
    version, cache = subject.versions.second, cache_of(tmp_path)
    before = await subject.ok(paths.PREPARE_PATH, version)
    await fake.stop_sidecar()
    shutil.rmtree(weights / version)
    (cache / ".draft-of-a-sidecar-that-died").mkdir()
    shutil.copytree(cache / version, cache / "step-8")
    (cache / "step-9").mkdir()
    (cache / "step-9" / "model.safetensors").write_bytes(b"half")

    await fake.start_sidecar()

    report = await settled(fake, lambda report: report.stage is Stage.OPEN)
    assert (report.prepared, report.staged) == (version, before.staged)
    assert {path.name for path in cache.iterdir()} == set(before.staged)
    assert (await subject.ok(paths.UPDATE_WEIGHTS_PATH, version)).proved == version


async def test_a_copy_from_before_the_machine_was_started_is_not_trusted(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    version = subject.versions.first
    await subject.ok(paths.PREPARE_PATH, version)
    await fake.stop_sidecar()
    record = cache_of(tmp_path) / version / ".record.json"
    told = json.loads(record.read_text()) | {"machine_boot": "another"}
    record.write_text(json.dumps(told))

    await fake.start_sidecar()

    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (report.prepared, report.staged) == (None, [])
    assert (await subject.serve(version)).proved == version


async def test_a_copy_that_was_tampered_with_causes_no_pause(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    before = await subject.serve(subject.versions.first)
    version = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, version)
    next((cache_of(tmp_path) / version).glob("*.safetensors")).touch()
    flushes = fake.engine.flushes

    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, version)

    assert fake.engine.flushes == flushes, "a pause would have been followed by a flush"

    report = await subject.report()
    assert (report.stage, report.prepared, report.paused_s) == (Stage.OPEN, None, None)
    assert report.last_change == before.last_change
    assert fake.engine.gate.is_open
    assert (await subject.serve(version)).proved == version


async def test_a_newer_prepare_takes_the_place_of_one_that_waits(
    fake: Worker, subject: Subject
) -> None:
    call = prepare(subject, subject.versions.absent)
    await settled(fake, waits)

    report = await subject.ok(paths.PREPARE_PATH, subject.versions.first)

    assert (report.prepared, report.refusal) == (subject.versions.first, None)
    reply = await call
    assert (reply.status_code, reply.json()["code"]) == (409, Code.BUSY)
    assert subject.versions.first in reply.json()["message"]
    assert (await subject.report()).refusal is None


async def test_a_newer_prepare_leaves_nothing_of_one_that_copies(
    fake: Worker, subject: Subject, weights: Path, tmp_path: Path
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    for version in ("step-7", "step-8"):
        write_version(weights, version, seed=7)
    # A copy stands still during a change.
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_s=2)
    change = asyncio.create_task(subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second))
    await settled(fake, lambda report: report.stage is Stage.LOADING)
    older = prepare(subject, "step-7")
    await settled(fake, lambda r: bool(r.progress and r.progress.bytes_done))
    assert [path for path in cache_of(tmp_path).iterdir() if path.name.startswith(".draft")]

    newer = prepare(subject, "step-8")

    assert (await older).json()["code"] == Code.BUSY
    assert (await change).json()["proved"] == subject.versions.second
    report = WorkerReport.model_validate_json((await newer).content)
    assert (report.prepared, report.staged[0]) == ("step-8", "step-8")
    assert "step-7" not in report.staged
    assert {path.name for path in cache_of(tmp_path).iterdir()} == set(report.staged)


async def test_a_prepared_version_is_installed_while_another_is_waited_for(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    call = prepare(subject, subject.versions.absent)
    await settled(fake, waits)

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)

    assert report.proved == subject.versions.second
    assert waits(report)
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)
    assert (await call).json()["code"] == Code.BUSY


async def test_the_same_prepare_joins_the_one_under_way(
    fake: Worker, subject: Subject, weights: Path
) -> None:
    operation = uuid4().hex
    calls = [prepare(subject, "step-7", operation=operation) for _caller in range(2)]
    await settled(fake, waits)

    write_version(weights, "step-7", seed=7)

    first, second = [await call for call in calls]
    assert first.status_code == 200
    assert first.json() | {"serial": None} == second.json() | {"serial": None}


async def test_a_version_that_was_written_again_is_staged_again(
    subject: Subject, weights: Path
) -> None:
    first = await subject.serve(subject.versions.first)
    await subject.serve(subject.versions.second)
    write_version(weights, subject.versions.first, seed=99)

    again = await subject.serve(subject.versions.first)

    assert first.proof is not None
    assert again.proof is not None
    assert again.proof.tokens != first.proof.tokens


@pytest.mark.parametrize("asker", ["operator", "trainer", "paused trainer"])
async def test_a_version_that_was_written_again_under_the_served_name_is_no_good_answer(
    fake: Worker, subject: Subject, weights: Path, asker: str
) -> None:
    version = subject.versions.first
    before = await subject.serve(version)
    write_version(weights, version, seed=99)
    reloads, flushes = fake.engine.reloads, fake.engine.flushes

    if asker == "operator":
        await subject.ok(paths.PREPARE_PATH, version)
        problem = await subject.refused(Code.CHECKPOINT_INVALID, paths.UPDATE_WEIGHTS_PATH, version)
        message = problem.message
    else:
        if asker == "paused trainer":
            await send(PAUSE, subject)
        reply = await send(update(version, 422, code="CheckpointInvalid"), subject)
        message = reply.json()["message"]
        await send(resume_refused(message="CheckpointInvalid"), subject)

    assert "was written again after its proof" in message
    assert "give it another name" in message
    report = await subject.report()
    assert report.stage is (Stage.PAUSED if asker == "paused trainer" else Stage.OPEN)
    assert (report.proved, report.proof) == (version, before.proof)
    assert report.refusal is not None
    assert report.refusal.message == message
    assert (fake.engine.reloads, fake.engine.flushes) == (reloads, flushes)
    assert (await subject.serve(subject.versions.second)).stage is Stage.OPEN
    again = await subject.serve(version)
    assert again.proof is not None
    assert again.proof.tensors != (before.proof and before.proof.tensors)


async def test_the_same_bytes_written_again_under_the_served_name_are_those_that_are_served(
    subject: Subject, weights: Path
) -> None:
    before = await subject.serve(subject.versions.first)
    write_version(weights, subject.versions.first, seed=1)

    report = await subject.serve(subject.versions.first)

    assert (report.stage, report.proof) == (Stage.OPEN, before.proof)


async def test_current_previous_and_next_are_kept(subject: Subject, weights: Path) -> None:
    for step in range(3, 7):
        write_version(weights, f"step-{step}", seed=step)
    for step in (1, 2, 3):
        await subject.serve(f"step-{step}")
    await subject.ok(paths.PREPARE_PATH, "step-4")

    report = await subject.ok(paths.PREPARE_PATH, "step-5")

    assert report.staged == ["step-5", "step-3", "step-2"]


async def test_room_for_two_goes_without_the_previous_version(
    model: Path, weights: Path, tmp_path: Path
) -> None:
    for step in (3, 4):
        write_version(weights, f"step-{step}", seed=step)
    room = room_for(2, weights)
    async with serving(model, weights, tmp_path / "pod", cache_bytes=room) as subject:
        for version in ("step-1", "step-3"):
            await subject.serve(version)

        report = await subject.ok(paths.PREPARE_PATH, "step-4")

        assert report.staged == ["step-4", "step-3"]


async def test_a_version_that_does_not_fit_is_refused_and_evicts_nothing(
    model: Path, weights: Path, tmp_path: Path
) -> None:
    write_version(weights, "step-3", seed=3)
    room = room_for(1, weights)
    async with serving(model, weights, tmp_path / "pod", cache_bytes=room) as subject:
        before = await subject.serve("step-1")

        problem = await subject.refused(Code.CACHE_FULL, paths.PREPARE_PATH, "step-3")

        assert f"({room} bytes; at most 0 of {room} can be freed)" in problem.message
        assert "spec.weights.cache.size" in problem.message
        report = await subject.report()
        assert (report.stage, report.staged) == (Stage.OPEN, ["step-1"])
        assert report.last_change == before.last_change
        assert list(cache_of(tmp_path).iterdir()) == [cache_of(tmp_path) / "step-1"]


async def test_a_share_of_the_file_system_is_left_to_others(
    model: Path, weights: Path, tmp_path: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod", cache_spare=0.9999) as subject:
        problem = await subject.refused(Code.CACHE_FULL, paths.PREPARE_PATH, "step-1")

    found = re.search(r"(\d+) bytes short \((\d+) of (\d+) free; (\d+) stay", problem.message)
    assert found is not None
    short, free, total, spare = map(int, found.groups())
    assert spare == int(total * 0.9999)
    # So many more free bytes would do; the version itself is small.
    assert 0 < short - (spare - free) < 10**8
    assert "delete files or images on the node" in problem.message


async def test_without_a_cache_the_trainer_s_files_are_read(
    model: Path, weights: Path, tmp_path: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod", cache_dir=None) as subject:
        report = await subject.serve("step-1")
        assert (report.proved, report.staged) == ("step-1", [])
        version = subject.versions.second
        await subject.ok(paths.PREPARE_PATH, version)
        next((weights / version).glob("*.safetensors")).touch()

        await subject.refused(Code.CHECKPOINT_INVALID, paths.UPDATE_WEIGHTS_PATH, version)

        report = await subject.report()
        assert (report.stage, report.prepared, report.paused_s) == (Stage.OPEN, None, None)
        assert (await subject.serve(version)).proved == version


async def test_files_that_change_between_pause_and_reload_are_noticed_and_the_pause_undone(
    model: Path, weights: Path, tmp_path: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod", cache_dir=None) as subject:
        await subject.serve("step-1")
        version = subject.versions.second
        await subject.ok(paths.PREPARE_PATH, version)
        await subject.ok(paths.PAUSE_PATH, version)
        next((weights / version).glob("*.safetensors")).touch()

        await subject.refused(Code.CHECKPOINT_INVALID, paths.RELOAD_PATH, version)

        assert (await subject.report()).stage is Stage.OPEN


async def test_a_sidecar_that_ends_does_not_wait_for_a_version(
    fake: Worker, subject: Subject
) -> None:
    call = prepare(subject, subject.versions.absent, timeout_s=60)
    await settled(fake, waits)

    async with asyncio.timeout(30):
        await fake.stop_sidecar()

    await asyncio.gather(call, return_exceptions=True)


async def test_the_manifest_s_digest_is_demanded_before_anything_is_staged(
    subject: Subject, weights: Path
) -> None:
    digest = write_manifest(weights / subject.versions.first)

    await subject.refused(
        Code.DIGEST_MISMATCH,
        paths.PREPARE_PATH,
        subject.versions.first,
        digest=f"sha256:{'0' * 64}",
    )
    report = await subject.ok(paths.PREPARE_PATH, subject.versions.first, digest=digest)

    assert report.staged == [subject.versions.first]
    await subject.refused(
        Code.DIGEST_MISMATCH,
        paths.PREPARE_PATH,
        subject.versions.second,
        digest=digest,
    )
    assert (await subject.report()).staged == [subject.versions.first]


async def test_a_change_in_parts_continues_though_another_version_was_prepared(
    fake: Worker, subject: Subject, weights: Path
) -> None:
    await subject.serve(subject.versions.first)
    version, command = subject.versions.second, {"operation": uuid4().hex}
    await subject.ok(paths.PREPARE_PATH, version, **command)
    await subject.ok(paths.UPDATE_WEIGHTS_PATH, version, **command, through="Pause")
    write_version(weights, "step-3", seed=3)
    between = await subject.ok(paths.PREPARE_PATH, "step-3")

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, version, **command)

    assert between.prepared == "step-3"
    assert (report.stage, report.proved) == (Stage.OPEN, version)
    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, subject.versions.first)


async def test_a_refusal_for_good_costs_one_read_until_the_files_or_the_asker_change(
    subject: Subject, weights: Path
) -> None:
    directory = write_version(weights, "step-7", seed=7)
    file = directory / "model.safetensors"
    good = file.read_bytes()
    spoil(directory, "a NaN in a norm")
    stamp = file.stat()
    first = await subject.refused(
        Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, "step-7", operation="rollout-2"
    )

    # A later reader finds it corrected, with the same stamp.
    file.write_bytes(good)
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    again = await subject.refused(
        Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, "step-7", operation="rollout-2"
    )
    assert again == first
    assert (await subject.report()).refusal == first

    await subject.ok(paths.PREPARE_PATH, "step-7", operation="rollout-3")


async def test_a_version_that_was_refused_for_good_and_mended_is_read_again(
    subject: Subject, weights: Path
) -> None:
    spoil(write_version(weights, "step-7", seed=7), "a NaN in a norm")
    await subject.refused(
        Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, "step-7", operation="rollout-2"
    )

    write_version(weights, "step-7", seed=7)

    report = await subject.ok(paths.PREPARE_PATH, "step-7", operation="rollout-2")
    assert (report.prepared, report.refusal) == ("step-7", None)


async def test_a_name_that_is_not_utf_8_among_the_versions_harms_no_report(
    subject: Subject, weights: Path
) -> None:
    Path(os.fsdecode(os.fsencode(weights) + b"/m\xfcller")).mkdir()  # noqa: ASYNC240
    call = prepare(subject, "step-404", wait_s=1)

    waiting = await subject.until(waits)
    reply = await call

    assert waiting.progress is not None
    assert "m\\udcfcller" in (waiting.progress.waiting_for or "")
    assert (reply.status_code, reply.json()["code"]) == (404, Code.VERSION_NOT_FOUND)


async def test_a_name_that_is_not_utf_8_in_a_version_is_named(
    subject: Subject, weights: Path
) -> None:
    path = os.fsencode(weights / subject.versions.first) + b"/m\xfcller.txt"
    Path(os.fsdecode(path)).touch()  # noqa: ASYNC240

    problem = await subject.refused(
        Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, subject.versions.first, wait_s=0
    )

    assert "m\\udcfcller.txt has a name that is not UTF-8" in problem.message
