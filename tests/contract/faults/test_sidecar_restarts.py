"""A sidecar that is restarted or killed at each stage of a change."""

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.certificates import Authority, mounted
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject, Versions, client_of
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.journals import journal_of
from tests.patience import given_up

UNTIL = {
    Stage.PAUSED: [paths.PAUSE_PATH],
    Stage.LOADED: [paths.PAUSE_PATH, paths.RELOAD_PATH],
    Stage.PROVED: [paths.PAUSE_PATH, paths.RELOAD_PATH, paths.VERIFY_PATH],
}
AFTERWARDS = {
    Stage.OPEN: (Stage.OPEN, "first"),
    Stage.PAUSED: (Stage.PAUSED, "first"),
    Stage.LOADED: (Stage.DOUBT, None),
    Stage.PROVED: (Stage.PROVED, "second"),
}


async def bring(subject: Subject, stage: Stage) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    for path in UNTIL.get(stage, []):
        await subject.ok(path, subject.versions.second)


@pytest.mark.parametrize("stage", AFTERWARDS)
async def test_a_restarted_sidecar_continues_from_its_journal(
    fake: Worker, subject: Subject, stage: Stage
) -> None:
    await bring(subject, stage)
    session = (await fake.report()).session
    await fake.stop_sidecar()

    await fake.start_sidecar()

    expected, which = AFTERWARDS[stage]
    report = await settled(fake, lambda report: report.stage is expected)
    assert report.proved == (which and getattr(subject.versions, which))
    assert report.session != session
    assert fake.engine.gate.is_open == (expected is Stage.OPEN)
    healed = await subject.serve(subject.versions.second)
    assert healed.proved == subject.versions.second


@pytest.mark.parametrize("stage", list(AFTERWARDS))
async def test_an_engine_that_restarted_while_the_sidecar_was_away_is_closed(
    fake: Worker, subject: Subject, stage: Stage
) -> None:
    await bring(subject, stage)
    await fake.stop_sidecar()
    await fake.restart_engine()

    await fake.start_sidecar()

    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (report.installed, report.proved) == (paths.BASE_VERSION, None)
    assert report.prepared == subject.versions.second


async def test_a_journal_that_cannot_be_read_proves_nothing(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    await subject.serve(subject.versions.first)
    await fake.stop_sidecar()
    (tmp_path / "pod" / "state" / "worker.json").write_text("{")

    await fake.start_sidecar()

    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (report.proved, report.installed) == (None, None)
    async with asyncio.timeout(30):
        while fake.engine.gate.is_open:  # noqa: ASYNC110 - the sidecar's watch closes it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("lost", ["unreadable", "gone"])
async def test_without_a_journal_what_an_engine_holds_is_not_taken_for_the_base_model(
    fake: Worker, subject: Subject, tmp_path: Path, lost: str
) -> None:
    """The engine was not restarted: it holds the version, and the probe finds nothing wrong."""
    await subject.serve(subject.versions.first)
    held = fake.engine.weights
    await fake.stop_sidecar()
    journal = tmp_path / "pod" / "state" / "worker.json"
    if lost == "gone":
        journal.unlink()
    else:
        journal.write_text("{")
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.CLOSED)

    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, paths.BASE_VERSION)
    await subject.refused(Code.WRONG_STAGE, paths.VERIFY_PATH, paths.BASE_VERSION)

    assert fake.engine.weights == held
    reloads = fake.engine.reloads
    report = await subject.serve(paths.BASE_VERSION)
    assert (report.stage, report.proved) == (Stage.OPEN, paths.BASE_VERSION)
    assert (fake.engine.weights != held, fake.engine.reloads) == (True, reloads + 1)


async def spawn(
    worker: Worker, scratch: Path, model: Path, weights: Path, **variables: str
) -> Process:
    """Start the sidecar as its container does."""
    environment = {
        "PYTHONPATH": "sidecar",
        "RLFLEET_MODEL_NAME": "fake",
        "RLFLEET_MODEL_PATH": str(model),
        "RLFLEET_WEIGHTS_PATH": f"{weights}/{{version}}",
        "RLFLEET_ENGINE_URL": worker.engine_url,
        "RLFLEET_TOKEN_FILE": str(scratch / "pod" / "token"),
        "RLFLEET_STATE_DIR": str(scratch / "pod" / "state"),
        "RLFLEET_HOST": "127.0.0.1",
        "RLFLEET_PORT": worker.admin_url.rpartition(":")[2],
        "RLFLEET_POLL_S": "0.05",
        **variables,
    }
    command = (sys.executable, "-m", "rlfleet_sidecar", "--log-level", "ERROR")
    return await asyncio.create_subprocess_exec(*command, env=environment)


async def reachable(subject: Subject) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await subject.report()).stage is Stage.CLOSED:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def test_a_sidecar_killed_in_the_reload_comes_back_in_doubt(
    tmp_path: Path, model: Path, weights: Path
) -> None:
    """The one test with a process of its own: nothing else dies as SIGKILL does."""
    worker = Worker(
        "127.0.0.1", model, weights, TOKEN, tmp_path / "pod", engine_port=0, admin_port=0
    )
    async with worker as fake:
        await fake.stop_sidecar()
        process = await spawn(fake, tmp_path, model, weights)
        async with client_of(fake.admin_url, authorization=f"Bearer {TOKEN}") as admin:
            subject = Subject(admin, admin, "fake", Versions())
            await reachable(subject)
            await bring(subject, Stage.OPEN)
            fake.engine.behaviour = Behaviour(reload_s=30)
            call = asyncio.create_task(
                subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)
            )
            while (await subject.report()).stage is not Stage.LOADING:  # noqa: ASYNC110 - remote
                await asyncio.sleep(0.02)
            process.kill()
            await process.wait()
            await given_up(call)
        journal = journal_of(tmp_path / "pod" / "state")
        assert journal["state"]["stage"] == Stage.LOADING
        fake.engine.behaviour = Behaviour()

        await fake.start_sidecar()

        report = await settled(fake, lambda report: report.stage is Stage.DOUBT)
        assert (report.proved, fake.engine.gate.is_open) == (None, False)


@pytest.mark.parametrize("is_secure", [False, True], ids=["HTTP", "HTTPS"])
async def test_sigterm_lets_the_command_end_first(
    tmp_path: Path,
    model: Path,
    weights: Path,
    is_secure: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    ports: dict[str, Any] = {"engine_port": 0, "admin_port": 0}
    variables = {}
    if is_secure:
        ports["tls_dir"] = mounted(tmp_path / "tls", Authority().secret("127.0.0.1"))
        variables["RLFLEET_TLS_DIR"] = str(ports["tls_dir"])
    worker = Worker("127.0.0.1", model, weights, TOKEN, tmp_path / "pod", **ports)
    async with worker:
        await worker.stop_sidecar()
        process = await spawn(worker, tmp_path, model, weights, **variables)
        async with worker.client() as admin:
            subject = Subject(admin, admin, "fake", Versions())
            await reachable(subject)
            await bring(subject, Stage.OPEN)
            worker.engine.behaviour = Behaviour(reload_s=0.5)
            reloads = worker.engine.reloads
            call = asyncio.create_task(
                subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)
            )
            async with asyncio.timeout(60):
                while worker.engine.reloads == reloads:  # noqa: ASYNC110 - it is another's
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGTERM)

            assert (await call).status_code == 200
        assert await process.wait() in {0, -signal.SIGTERM}, "uvicorn ends by the signal it got"
        assert worker.engine.gate.is_open
