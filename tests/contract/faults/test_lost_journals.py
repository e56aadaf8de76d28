"""A journal that is lost, or older than the last load, while its engine continues.

The sidecar must not take the engine's weights for the boot's, nor for those of an older proof.
"""

import asyncio
from pathlib import Path

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import settled
from tests.contract.faults.test_sidecar_killed_in_change import LONG_S, Mortal
from tests.contract.subject import Subject
from tests.contract.transcripts import PAUSE, play
from tests.contract.transfers import INIT, START
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker


@pytest.fixture
def kind() -> type[Worker]:
    return Mortal


@pytest.fixture
async def mortal(fake: Worker) -> Mortal:
    assert isinstance(fake, Mortal)
    return fake


async def load_first(subject: Subject) -> None:
    """Load a version into a new engine, without its proof."""
    version = subject.versions.first
    await subject.ok(paths.PREPARE_PATH, version)
    await subject.ok(paths.PAUSE_PATH, version, ttl_s=LONG_S)
    await subject.ok(paths.RELOAD_PATH, version)


async def demand_base_unproved(mortal: Mortal, subject: Subject) -> None:
    """Require that the base counts as neither held nor proved, and that it can be loaded."""
    report = await settled(mortal, lambda report: report.stage is not Stage.DOWN)
    assert (report.installed, report.proved) == (None, None)
    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, paths.BASE_VERSION)
    reloads = mortal.engine.reloads
    healed = await subject.serve(paths.BASE_VERSION)
    assert (healed.proved, mortal.engine.reloads) == (paths.BASE_VERSION, reloads + 1)


async def test_a_journal_lost_in_the_first_load_does_not_make_the_version_the_base(
    mortal: Mortal, subject: Subject
) -> None:
    await load_first(subject)
    await mortal.kill_sidecar()
    mortal.journal.unlink()

    await mortal.start_sidecar()

    await demand_base_unproved(mortal, subject)


async def test_frozen_requests_do_not_continue_with_weights_that_nothing_proved(
    mortal: Mortal, subject: Subject
) -> None:
    await subject.serve(paths.BASE_VERSION)
    mortal.engine.behaviour = Behaviour(token_s=1)
    frozen = asyncio.create_task(subject.complete(max_tokens=20))
    await asyncio.sleep(0.05)
    await load_first(subject)
    await mortal.kill_sidecar()
    mortal.journal.unlink()
    mortal.engine.behaviour = Behaviour()

    await mortal.start_sidecar()

    reply = await frozen
    assert reply.json()["choices"][0]["finish_reason"] == "abort"
    await demand_base_unproved(mortal, subject)


async def test_a_record_that_is_older_than_the_last_load_is_void(
    mortal: Mortal, subject: Subject, tmp_path: Path
) -> None:
    await subject.serve(paths.BASE_VERSION)
    older = (tmp_path / "pod" / "state" / "worker.json").read_bytes()
    await subject.serve(subject.versions.first)
    await mortal.kill_sidecar()
    mortal.journal.write_bytes(older)

    await mortal.start_sidecar()

    await demand_base_unproved(mortal, subject)


async def test_a_journal_lost_in_a_transfer_does_not_make_what_was_sent_the_base(
    mortal: Mortal, subject: Subject, weights: Path
) -> None:
    mortal.engine.transfer.arriving = weights / subject.versions.second
    await play((INIT, PAUSE, START), subject, mortal)
    await mortal.kill_sidecar()
    mortal.journal.unlink()

    await mortal.start_sidecar()

    await demand_base_unproved(mortal, subject)


class TestAfterASelfTest:
    """A self-test loads as well, and ends with the base."""

    @pytest.fixture
    def identity(self) -> dict[str, object]:
        return {"self_test_s": 60}

    async def test_a_restarted_sidecar_finds_the_base_and_serves_it(
        self, mortal: Mortal, subject: Subject
    ) -> None:
        assert mortal.engine.reloads
        await mortal.kill_sidecar()
        await mortal.start_sidecar()

        report = await settled(mortal, lambda report: report.stage is Stage.CLOSED)

        assert report.installed == paths.BASE_VERSION
        assert (await subject.serve(paths.BASE_VERSION)).proved == paths.BASE_VERSION
