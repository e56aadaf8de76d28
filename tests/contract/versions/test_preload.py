"""A version is read into the engine's memory while it serves, and no change depends on it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject, Versions, client_of
from tests.fakes.worker import Worker

FIRST, SECOND = Versions().first, Versions().second


def preloaded(report: WorkerReport) -> float:
    assert report.last_change is not None
    return report.last_change.timings.preloaded


def spoil_staged(tmp_path: Path, version: str) -> None:
    """Change bytes of a staged copy as a failing disk does."""
    for path in (tmp_path / "pod" / "cache" / "versions" / version).glob("*.safetensors"):
        seen = path.stat()
        with path.open("r+b") as file:
            file.seek(-2, os.SEEK_END)
            file.write(b"\x11\x11")
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


async def test_a_serving_engine_has_the_version_in_memory_before_its_change(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(FIRST)
    assert fake.engine.preloads == 0

    await subject.ok(paths.PREPARE_PATH, SECOND)
    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, SECOND)

    assert (report.proved, preloaded(report)) == (SECOND, 1)
    assert fake.engine.preloads == 1


async def test_an_engine_that_serves_nothing_preloads_nothing(
    fake: Worker, subject: Subject
) -> None:
    report = await subject.serve(FIRST)

    assert (fake.engine.preloads, preloaded(report)) == (0, 0)


async def test_a_newer_prepare_replaces_the_preload(fake: Worker, subject: Subject) -> None:
    await subject.serve(FIRST)
    await subject.ok(paths.PREPARE_PATH, SECOND)
    await subject.ok(paths.PREPARE_PATH, "base")

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, "base")
    assert (preloaded(report), fake.engine.preloads) == (1, 2)

    # The preload of the other version is gone with the memory that it had.
    await subject.ok(paths.PREPARE_PATH, FIRST)
    fake.engine.behaviour = replace(fake.engine.behaviour, preload_unknown=True)
    await subject.ok(paths.PREPARE_PATH, SECOND)
    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, SECOND)
    assert (report.proved, preloaded(report)) == (SECOND, 0)


async def test_an_engine_without_preloads_changes_as_before(fake: Worker, subject: Subject) -> None:
    fake.engine.behaviour = replace(fake.engine.behaviour, preload_unknown=True)
    await subject.serve(FIRST)

    report = await subject.serve(SECOND)

    assert (report.proved, preloaded(report)) == (SECOND, 0)


async def test_an_engine_that_restarted_preloads_again(fake: Worker, subject: Subject) -> None:
    await subject.serve(FIRST)
    await subject.ok(paths.PREPARE_PATH, SECOND)
    await fake.restart_engine()
    await settled(fake, lambda report: report.stage is Stage.CLOSED)

    report = await subject.serve(SECOND)

    assert (report.proved, preloaded(report)) == (SECOND, 0)


async def test_bytes_that_change_after_the_preload_are_not_installed(
    subject: Subject, tmp_path: Path
) -> None:
    await subject.serve(FIRST)
    await subject.ok(paths.PREPARE_PATH, SECOND)
    spoil_staged(tmp_path, SECOND)

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, SECOND)

    assert (report.proved, preloaded(report)) == (SECOND, 1)


async def test_a_preload_of_other_bytes_than_the_checked_ones_is_never_served(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    await subject.serve(FIRST)
    fake.engine.behaviour = replace(fake.engine.behaviour, preload_unknown=True)
    await subject.ok(paths.PREPARE_PATH, SECOND)
    spoil_staged(tmp_path, SECOND)
    fake.engine.behaviour = replace(fake.engine.behaviour, preload_unknown=False)
    await subject.ok(paths.PREPARE_PATH, SECOND)

    problem = await subject.refused(Code.RELOAD_FAILED, paths.UPDATE_WEIGHTS_PATH, SECOND)

    assert "other bytes than the checkpoint's" in problem.message
    assert (await subject.report()).stage is Stage.DOUBT


@asynccontextmanager
async def serving(
    model: Path, weights: Path, scratch: Path, preload_s: float
) -> AsyncIterator[tuple[Worker, Subject]]:
    """Run a worker whose prepares wait for a preload for so long; it serves the first version."""
    worker = Worker(
        "127.0.0.1",
        model,
        weights,
        TOKEN,
        scratch,
        engine_port=0,
        admin_port=0,
        poll_s=0.05,
        probe_tokens=2,
        preload_s=preload_s,
    )
    async with worker, worker.client() as admin, client_of(worker.engine_url) as engine:
        await settled(worker, lambda report: report.stage is Stage.CLOSED)
        subject = Subject(admin, engine, "fake", Versions())
        await subject.serve(FIRST)
        yield worker, subject


async def test_a_preload_that_hangs_delays_a_prepare_for_a_bounded_time(
    model: Path, weights: Path, tmp_path: Path
) -> None:
    async with serving(model, weights, tmp_path / "pod", preload_s=0.2) as (worker, subject):
        worker.engine.behaviour = replace(worker.engine.behaviour, preload_hangs=True)

        report = await subject.serve(SECOND)

        assert (report.proved, worker.engine.preloads) == (SECOND, 1)


async def test_preloads_can_be_turned_off(model: Path, weights: Path, tmp_path: Path) -> None:
    async with serving(model, weights, tmp_path / "pod", preload_s=0) as (worker, subject):
        await subject.serve(FIRST)
        report = await subject.serve(SECOND)

        assert (report.proved, preloaded(report), worker.engine.preloads) == (SECOND, 0, 0)
