"""An engine whose reload leaves weights behind serves no version, and says why."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject, Versions, client_of
from tests.contract.transcripts import PAUSE, RESUME, play
from tests.contract.transfers import INIT, SEND, START, finish
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import SHAPES, write_file
from tests.fakes.worker import Worker

STALE = "model.layers.N.mlp.up_proj.weight"
KINDS = 5


@pytest.fixture
def identity() -> dict[str, Any]:
    return {"self_test_s": 60}


async def restart(fake: Worker, subject: Subject, **lie: Any) -> WorkerReport:
    """Start another engine, which the journal knows nothing of, and wait for its test."""
    fake.engine.behaviour = replace(fake.engine.behaviour, **lie)
    return await again(fake, subject)


async def again(fake: Worker, subject: Subject) -> WorkerReport:
    before = (await subject.report()).boot
    await fake.restart_engine()
    return await subject.until(lambda report: report.boot not in {None, before})


async def until_ended(fake: Worker) -> None:
    """Wait until nothing listens where the engine did."""
    async with asyncio.timeout(10), client_of(fake.engine_url) as client:
        while True:
            try:
                await client.get("/health")
            except httpx.TransportError:
                return
            await asyncio.sleep(0.02)


def is_over(attempt: int, report: WorkerReport) -> bool:
    test = report.self_test
    return test is not None and (test.passed, test.attempts) == (None, attempt) and test.seconds > 0


async def test_a_sound_engine_is_tested_before_it_serves(fake: Worker, subject: Subject) -> None:
    test = (await subject.report()).self_test

    assert test is not None
    assert (test.passed, test.distance, test.kinds, test.stale) == (True, 0.0, KINDS, ())
    assert fake.engine.reloads == KINDS + 2
    report = await subject.serve(subject.versions.first)
    assert report.proof is not None
    assert {Evidence.FAITHFUL, Evidence.SENSITIVE} <= set(report.proof.verified_by)


async def test_without_a_journal_an_engine_is_not_tested_with_the_weights_of_a_version(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    await subject.serve(subject.versions.first)
    await fake.stop_sidecar()
    (tmp_path / "pod" / "state" / "worker.json").unlink()
    await fake.start_sidecar()
    await until_ended(fake)
    await fake.restart_engine()

    report = await settled(fake, lambda report: bool(report.self_test and report.self_test.seconds))

    assert report.self_test is not None
    assert (report.self_test.passed, report.self_test.distance) == (True, 0.0)
    await subject.serve(subject.versions.first)


async def test_data_parallel_engines_serve_no_version_because_one_alone_reports(
    fake: Worker, subject: Subject
) -> None:
    report = await restart(fake, subject, engines=2)

    problem = await subject.refused(
        Code.ENGINE_UNFAITHFUL, paths.PREPARE_PATH, subject.versions.first
    )

    assert (report.self_test and report.self_test.passed) is False
    assert "2 data-parallel engines" in problem.message
    assert "set spec.replicas" in problem.message
    # An engine of one is another engine, and is tested.
    await restart(fake, subject, engines=1)
    await subject.serve(subject.versions.first)


async def test_an_engine_that_no_reload_can_change_is_not_tried_and_names_what_to_serve(
    fake: Worker, subject: Subject
) -> None:
    reloads = fake.engine.reloads
    report = await restart(
        fake, subject, release="0.32.1", unreloadable="its base model was quantised by torchao"
    )

    problem = await subject.refused(
        Code.ENGINE_UNFAITHFUL, paths.PREPARE_PATH, subject.versions.first
    )

    assert (report.self_test and report.self_test.passed) is False
    assert fake.engine.reloads == reloads
    assert "cannot reload in place: its base model was quantised by torchao;" in problem.message
    assert "serve a base model quantised by another tool" in problem.message


async def test_an_engine_that_starts_again_is_not_tested_again(
    fake: Worker, subject: Subject
) -> None:
    tested = fake.engine.reloads

    await again(fake, subject)

    assert fake.engine.reloads == tested
    assert (await subject.serve(subject.versions.first)).self_test is not None


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"reload_is_unfaithful": True}, "its base model, reloaded, differs"),
        ({"stale_kinds": (STALE,)}, STALE),
        ({"reload_fails": True}, "failed to reload its base model"),
    ],
)
async def test_an_engine_that_does_not_reload_serves_its_base_and_refuses_versions(
    fake: Worker, subject: Subject, lie: dict[str, Any], said: str
) -> None:
    fake.engine.behaviour = replace(fake.engine.behaviour, release="0.32.9", **lie)
    await fake.restart_engine()
    await subject.until(
        lambda report: report.self_test is not None and report.self_test.passed is False
    )
    # It does not serve with weights of the test; the kubelet restarts it.
    await until_ended(fake)
    report = await again(fake, subject)

    problem = await subject.refused(
        Code.ENGINE_UNFAITHFUL, paths.PREPARE_PATH, subject.versions.first
    )

    assert said in problem.message
    assert "vLLM 0.32.9 (cpu) with FakeForCausalLM" in problem.message
    assert not problem.retryable
    assert (report.stage, report.self_test and report.self_test.passed) == (Stage.CLOSED, False)
    served = await subject.serve(paths.BASE_VERSION)
    assert served.proof is not None
    assert not {Evidence.FAITHFUL, Evidence.SENSITIVE} & set(served.proof.verified_by)


async def die_in_tests(
    fake: Worker, subject: Subject, times: int, how: str = "dies_in_reload"
) -> None:
    """Start an engine of another release until it has died so often in its test, and once more."""
    lie: dict[str, Any] = {"release": "0.32.9", how: True}
    fake.engine.behaviour = replace(fake.engine.behaviour, **lie)
    for attempt in range(1, times + 1):
        await fake.restart_engine()
        await subject.until(partial(is_over, attempt))
    await fake.restart_engine()
    await subject.until(lambda report: report.stage is Stage.CLOSED)


@pytest.mark.parametrize("how", ["dies_in_reload", "loses_rank_in_reload"])
async def test_an_engine_that_dies_in_its_test_is_tested_again_and_then_refused(
    fake: Worker, subject: Subject, how: str
) -> None:
    await die_in_tests(fake, subject, 3, how)

    problem = await subject.refused(
        Code.ENGINE_UNFAITHFUL, paths.PREPARE_PATH, subject.versions.first
    )

    assert "exited 3 times" in problem.message
    assert "the sidecar repeats the test" in problem.message


class TestTestsThatWerePutOff:
    @pytest.fixture
    def identity(self) -> dict[str, Any]:
        return {"self_test_s": 60, "self_test_again_s": 0.3}

    async def test_an_engine_that_died_in_its_tests_needs_no_new_pod(
        self, fake: Worker, subject: Subject
    ) -> None:
        await die_in_tests(fake, subject, times=3)
        # Whatever killed it is over, and its process is the same.
        fake.engine.behaviour = replace(fake.engine.behaviour, dies_in_reload=False)

        report = await subject.until(
            lambda report: report.stage is Stage.CLOSED and has_passed(report)
        )

        assert report.self_test is not None
        assert (report.self_test.attempts, report.self_test.again_at) == (4, None)
        served = await subject.serve(subject.versions.first)
        assert served.proof is not None
        assert Evidence.SENSITIVE in served.proof.verified_by

    async def test_one_that_dies_again_waits_twice_as_long(
        self, fake: Worker, subject: Subject
    ) -> None:
        await die_in_tests(fake, subject, times=3)
        put_off = (await subject.report()).self_test
        await subject.until(partial(is_over, 4))
        await fake.restart_engine()
        later = (await subject.until(lambda report: report.stage is Stage.CLOSED)).self_test
        now = time.time()

        assert put_off is not None
        assert later is not None
        assert (put_off.attempts, later.attempts) == (3, 4)
        assert put_off.again_at is not None
        assert later.again_at is not None
        assert put_off.again_at < now < later.again_at <= now + 0.6

    async def test_a_sidecar_that_dies_in_such_a_test_does_not_serve_what_it_left(
        self, fake: Worker, subject: Subject
    ) -> None:
        await die_in_tests(fake, subject, times=3)
        fake.engine.behaviour = replace(fake.engine.behaviour, dies_in_reload=False, reload_s=0.3)
        await subject.until(partial(is_under_way, 4))

        await fake.stop_sidecar()
        await fake.start_sidecar()

        await until_ended(fake)


def has_passed(report: WorkerReport) -> bool:
    return report.self_test is not None and report.self_test.passed is True


def is_under_way(attempt: int, report: WorkerReport) -> bool:
    test = report.self_test
    return test is not None and (test.passed, test.attempts) == (None, attempt)


async def test_what_the_probe_does_not_reach_is_not_claimed(fake: Worker, subject: Subject) -> None:
    report = await restart(
        fake, subject, release="0.32.9", unreached_kinds=(STALE,), stale_kinds=(STALE,)
    )

    test = report.self_test
    assert test is not None
    assert (test.passed, test.kinds, test.unreached) == (True, KINDS - 1, (STALE,))


async def test_a_kind_that_a_change_leaves_as_it_is_is_not_claimed(
    fake: Worker, subject: Subject
) -> None:
    # As the zero points of a symmetric quantisation, which vLLM drops.
    report = await restart(fake, subject, release="0.32.9", constant_kinds=(STALE,))

    test = report.self_test
    assert test is not None
    assert (test.passed, test.kinds, test.unreached) == (True, KINDS - 1, (STALE,))


async def test_what_the_probe_does_not_reach_is_changed_in_one_reload_for_memory_to_show(
    fake: Worker, subject: Subject
) -> None:
    unreached = ("model.norm.weight", STALE)

    await restart(fake, subject, release="0.32.9", unreached_kinds=unreached)

    assert unreached in fake.engine.changed
    assert fake.engine.changed[-1] == ()


async def test_an_untested_release_serves_once_it_has_passed(
    fake: Worker, subject: Subject
) -> None:
    report = await restart(fake, subject, release="0.34.0")

    assert report.self_test is not None
    assert (report.self_test.is_tested, report.self_test.passed) == (False, True)
    assert (await subject.serve(subject.versions.first)).stage is Stage.OPEN


class TestTestsThatAreRemembered:
    @pytest.fixture
    async def second(
        self, tmp_path: Path, model: Path, weights: Path, subject: Subject
    ) -> AsyncIterator[Worker]:
        """A worker whose pod brings what the first one showed."""
        known = (await subject.report()).self_test
        assert known is not None
        # Tested by an extension that did not count the release among the tested.
        known = known.model_copy(update={"is_tested": False})
        worker = Worker(
            "127.0.0.1",
            model,
            weights,
            TOKEN,
            tmp_path / "second",
            engine_port=0,
            admin_port=0,
            behaviour=Behaviour(token_s=0.001),
            poll_s=0.05,
            self_test_s=60,
            self_test=known.model_dump_json(),
        )
        async with worker:
            await settled(worker, lambda report: report.stage is Stage.CLOSED)
            yield worker

    async def test_an_equal_engine_is_not_tested(self, second: Worker, weights: Path) -> None:
        assert second.engine.reloads == 0
        async with second.client() as admin, client_of(second.engine_url) as engine:
            subject = Subject(admin, engine, "fake", Versions(), str(weights))
            report = await subject.serve(subject.versions.first)
        assert report.proof is not None
        assert Evidence.SENSITIVE in report.proof.verified_by
        assert report.self_test is not None
        assert report.self_test.is_tested


class TestReleasesThatMustBeTested:
    @pytest.fixture
    def identity(self) -> dict[str, Any]:
        return {"self_test_s": 60, "require_tested": True}

    async def test_another_is_refused(self, fake: Worker, subject: Subject) -> None:
        await restart(fake, subject, release="0.34.0")

        problem = await subject.refused(
            Code.ENGINE_UNTESTED, paths.PREPARE_PATH, subject.versions.first
        )

        assert "vLLM 0.34.0" in problem.message


class TestWithoutATest:
    @pytest.fixture
    def identity(self) -> dict[str, Any]:
        return {"self_test_s": 0}

    async def test_no_proof_claims_it_and_an_untested_release_is_refused(
        self, fake: Worker, subject: Subject
    ) -> None:
        report = await subject.serve(subject.versions.first)
        await restart(fake, subject, release="0.34.0")

        assert report.proof is not None
        assert not {Evidence.FAITHFUL, Evidence.SENSITIVE} & set(report.proof.verified_by)
        await subject.refused(Code.ENGINE_UNTESTED, paths.PREPARE_PATH, subject.versions.second)


class TestADrafter:
    @pytest.fixture
    def model(self, model: Path) -> Path:
        """Make of it one that brings layers for multi-token prediction, and uses them."""
        write_file(model / "model.safetensors", SHAPES | {"mtp.fc.weight": (8, 16)}, 0)
        return model

    async def test_its_weights_move_no_answer_and_that_is_no_finding(
        self, fake: Worker, subject: Subject
    ) -> None:
        report = await restart(fake, subject, release="0.32.9", stale_kinds=("mtp.fc.weight",))

        assert report.self_test is not None
        assert (report.self_test.passed, report.self_test.kinds) == (True, KINDS)


async def test_what_an_engine_has_shown_of_reloads_from_files_is_not_claimed_of_sent_weights(
    fake: Worker, subject: Subject
) -> None:
    by_files = (await subject.serve(subject.versions.first)).proof
    assert by_files is not None
    assert {Evidence.FAITHFUL, Evidence.SENSITIVE} <= set(by_files.verified_by)

    await play((INIT, PAUSE, START, SEND, finish("9"), RESUME), subject, fake)

    by_trainer = (await subject.report()).proof
    assert by_trainer is not None
    assert by_trainer.verified_by == (Evidence.PROBE,)
