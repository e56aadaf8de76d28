"""A disk that becomes full during a change: nothing begins, and no request waits for ever.

The journal is written under another name first; a directory with that name blocks every write.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import ended, settled
from tests.contract.faults.test_sidecar_restarts import bring
from tests.contract.sidecar.test_time_to_live import (
    EPOCH,
    FENCE,
    LATE_S,
    TTL_S,
    beaten_s,
    lead,
    pause_led,
)
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, RESUME, resume_refused, send, update
from tests.fakes.worker import Worker
from tests.journals import journal_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "pod" / "state"


@pytest.fixture
def full(state: Path) -> Callable[[], None]:
    """Neither a draft of the journal can be made nor the journal be extended."""

    def fill() -> None:
        (state / "worker.new").mkdir()
        journal = state / "worker.json"
        # A copy in its place is not the file that the sidecar extends.
        Path(shutil.copy(journal, state / "copy")).replace(journal)

    return fill


def freed(state: Path) -> None:
    (state / "worker.new").rmdir()


def written(state: Path) -> dict[str, Any]:
    found: dict[str, Any] = journal_of(state)["state"]
    return found


async def demand_open(fake: Worker, subject: Subject) -> None:
    """See that it stays so: a sidecar that cannot note it must not close the gate again."""
    looks = 10
    for _look in range(looks):
        report = await fake.report()
        assert (report.stage, fake.engine.gate.is_open) == (Stage.OPEN, True)
        await asyncio.sleep(0.03)
    assert (await subject.complete(max_tokens=1)).status_code == 200


@pytest.mark.parametrize("path", [paths.RELOAD_PATH, paths.UPDATE_WEIGHTS_PATH])
async def test_a_reload_that_cannot_be_noted_is_not_begun_and_the_pause_is_undone(
    fake: Worker, subject: Subject, full: Callable[[], None], path: str
) -> None:
    await bring(subject, Stage.PAUSED)
    reloads = fake.engine.reloads
    full()

    problem = await subject.refused(Code.INTERNAL, path, subject.versions.second)

    assert "failed to write the sidecar's journal" in problem.message
    report = await fake.report()
    assert (report.failure, report.proved) == (problem, subject.versions.first)
    assert (report.paused_s, fake.engine.reloads) == (None, reloads)
    await demand_open(fake, subject)


async def test_a_pause_that_cannot_be_noted_closes_nothing(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await bring(subject, Stage.OPEN)
    full()

    await subject.refused(Code.INTERNAL, paths.UPDATE_WEIGHTS_PATH, subject.versions.second)

    report = await fake.report()
    assert (report.paused_s, report.proved) == (None, subject.versions.first)
    await demand_open(fake, subject)
    freed(state)
    healed = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)
    assert (healed.proved, healed.failure) == (subject.versions.second, None)


async def test_a_driver_s_prepare_that_cannot_be_recorded_is_reported_as_rejected(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    """Status would show a fleet that prepares, with no word of the disk."""
    await bring(subject, Stage.OPEN)
    common = {"operation": "rollout-7", "fence": FENCE | {"epoch": EPOCH, "sequence": 1}}
    full()

    version = subject.versions.second
    problem = await subject.refused(Code.INTERNAL, paths.PREPARE_PATH, version, **common)

    report = await fake.report()
    assert (report.refusal, report.failure) == (problem, None)
    assert (problem.operation, problem.retryable) == ("rollout-7", True)
    assert "check the node's disk (dmesg), then delete the pod" in problem.message
    freed(state)
    healed = await subject.ok(paths.PREPARE_PATH, version, **common)
    assert (healed.prepared, healed.refusal) == (version, None)


async def test_a_driver_s_change_that_cannot_be_recorded_is_reported_as_failed(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await bring(subject, Stage.OPEN)
    version = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, version)
    common = {"operation": "rollout-7", "fence": FENCE | {"epoch": EPOCH, "sequence": 1}}
    full()

    problem = await subject.refused(Code.INTERNAL, paths.UPDATE_WEIGHTS_PATH, version, **common)

    assert (await fake.report()).failure == problem
    await demand_open(fake, subject)
    freed(state)
    healed = await subject.ok(paths.UPDATE_WEIGHTS_PATH, version, **common)
    assert (healed.proved, healed.failure) == (version, None)


async def test_a_pause_without_a_driver_ends_though_it_cannot_be_recorded(
    fake: Worker, subject: Subject, full: Callable[[], None]
) -> None:
    await lead(subject, Stage.PAUSED)
    full()

    _, took_s = await ended(fake, Stage.OPEN)

    assert took_s < TTL_S + LATE_S
    await demand_open(fake, subject)


async def test_a_heartbeat_that_cannot_be_noted_keeps_no_change(
    fake: Worker, subject: Subject, full: Callable[[], None]
) -> None:
    """No command could be recorded either, so none could end it."""
    await lead(subject, Stage.PAUSED)
    await pause_led(subject, EPOCH)
    full()

    assert await beaten_s(subject) < TTL_S + LATE_S
    await demand_open(fake, subject)


async def test_a_change_that_has_begun_to_load_ends_as_it_would(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await bring(subject, Stage.OPEN)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_s=1.0)
    update = asyncio.create_task(subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second))
    await settled(fake, lambda report: report.stage is Stage.LOADING)
    full()

    assert (await update).status_code == 200

    assert (await fake.report()).proved == subject.versions.second
    await demand_open(fake, subject)
    assert written(state)["stage"] == Stage.LOADING


async def test_an_engine_whose_failed_proof_cannot_be_noted_is_ended(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    """On disk it is paused over what was proved, and that would be undone."""
    await bring(subject, Stage.PAUSED)
    full()
    fake.engine.behaviour = replace(fake.engine.behaviour, wobbles=True)

    await subject.refused(Code.PROOF_FAILED, paths.VERIFY_PATH, subject.versions.first)

    # No kubelet restarts it here.
    await settled(fake, lambda report: report.stage is Stage.DOWN)
    on_disk = written(state)
    assert (on_disk["stage"], on_disk["proved"]) == (Stage.PAUSED, subject.versions.first)
    await fake.stop_sidecar()
    await fake.restart_engine()
    await fake.start_sidecar()
    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (report.proved, fake.engine.gate.is_open) == (None, False)


async def test_a_trainer_s_update_that_cannot_be_noted_is_not_begun(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await subject.serve(subject.versions.first)
    await send(PAUSE, subject)
    full()

    refused = update(subject.versions.second, 500, code=Code.INTERNAL)
    reply = await send(refused, subject)

    assert "failed to write the sidecar's journal" in reply.json()["message"]
    report = await fake.report()
    assert (report.stage, report.prepared) == (Stage.PAUSED, subject.versions.first)
    await send(resume_refused(message="failed to write"), subject)
    freed(state)
    await send(update(subject.versions.second), subject)
    await send(RESUME, subject)
    await demand_open(fake, subject)


async def test_a_rejected_broadcast_that_cannot_be_recorded_still_counts(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await subject.serve(subject.versions.first)
    await send(PAUSE, subject)
    full()

    reply = await subject.admin.post("/init_broadcaster", json={})

    assert (reply.status_code, reply.json()["code"]) == (500, Code.INTERNAL)
    nothing = {"weight_dir": None}
    assert (await subject.admin.post("/update_weights", json=nothing)).status_code == 400
    freed(state)
    assert (await subject.admin.post("/init_broadcaster", json={})).status_code == 400
    await fake.stop_sidecar()
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.PAUSED)
    assert (await subject.admin.post("/update_weights", json=nothing)).status_code == 400


async def test_an_engine_that_restarts_is_out_of_service_though_it_cannot_be_noted(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await bring(subject, Stage.OPEN)
    full()

    await fake.restart_engine()

    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert report.proved is None
    assert not await subject.is_ready()
    freed(state)
    assert (await subject.serve(subject.versions.first)).stage is Stage.OPEN


async def test_what_could_not_be_noted_is_written_when_there_is_room_again(
    fake: Worker, subject: Subject, full: Callable[[], None], state: Path
) -> None:
    await lead(subject, Stage.PAUSED)
    full()
    await ended(fake, Stage.OPEN)
    assert written(state)["stage"] == Stage.PAUSED

    freed(state)

    async with asyncio.timeout(30):
        while written(state)["stage"] != Stage.OPEN:  # noqa: ASYNC110 - the sidecar writes it
            await asyncio.sleep(0.02)
    await fake.stop_sidecar()
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.OPEN)
    await demand_open(fake, subject)
