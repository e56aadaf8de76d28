"""An engine that fails or lies at each step: where the worker ends, and what it says."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Exits, Stage
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.patience import given_up

HARMLESS = {
    "pause fails after it paused": ({"pause_fails": True}, Code.PAUSE_FAILED),
    "engine runs though it paused": ({"runs_on": True}, Code.PAUSE_FAILED),
    "pause takes too long": ({"pause_s": 60.0}, Code.PAUSE_FAILED),
    "flush does not succeed": ({"flush_fails": True}, Code.FLUSH_FAILED),
}
"""Lies before the reload: the worker resumes with its old weights."""
GRAVE = {
    "reload fails": ({"reload_fails": True}, Code.RELOAD_FAILED),
    "reload takes too long": ({"reload_s": 60.0}, Code.RELOAD_FAILED),
    "reload leaves tensors out": ({"reload_drops_tensor": True}, Code.RELOAD_FAILED),
    "no rank reports what it loaded": ({"ranks": 0}, Code.RELOAD_FAILED),
    "engine hangs at the resume": ({"resume_hangs": True}, Code.PROOF_FAILED),
    "logprobs are not finite": ({"nan_logprobs": True}, Code.PROOF_FAILED),
    "probe is answered in two ways": ({"wobbles": True}, Code.PROOF_FAILED),
}
"""Lies from the reload on: the engine's weights are unknown."""
DEADLY = {
    "dies in the reload": ({"dies_in_reload": True}, Code.RELOAD_FAILED),
    "a rank dies in the reload": ({"loses_rank_in_reload": True}, Code.RELOAD_FAILED),
    "dies in the probe": ({"dies_in_probe": True}, Code.PROOF_FAILED),
}
TIMEOUTS = {
    Code.PAUSE_FAILED: {"pause_s": 0.3},
    Code.RELOAD_FAILED: {"reload_s": 0.3},
    Code.PROOF_FAILED: {"verify_s": 0.5},
}
"""By what a lie leads to: the steps before it are honest, and have their time."""


async def update(subject: Subject, code: Code) -> None:
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    timeouts = TIMEOUTS.get(code, {})
    problem = await subject.refused(
        code,
        paths.UPDATE_WEIGHTS_PATH,
        subject.versions.second,
        timeouts=timeouts,
        operation="o",
    )
    assert problem.message


def honest(fake: Worker) -> None:
    fake.engine.behaviour = Behaviour(token_s=0.001)


@pytest.mark.parametrize(("lie", "code"), HARMLESS.values(), ids=HARMLESS)
async def test_a_failure_before_the_reload_is_undone(
    fake: Worker, subject: Subject, lie: dict[str, float], code: Code
) -> None:
    await subject.serve(subject.versions.first)
    fake.engine.behaviour = replace(fake.engine.behaviour, **lie)  # type: ignore[arg-type]

    await update(subject, code)

    report = await subject.report()
    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.first)
    assert report.failure is not None
    assert report.failure.code is code
    assert fake.engine.gate.is_open
    assert fake.engine.paused is None
    assert await subject.is_ready()
    honest(fake)
    assert (await subject.serve(subject.versions.second)).failure is None


async def test_a_pause_that_lands_after_it_was_undone_is_ended(
    fake: Worker, subject: Subject
) -> None:
    """vLLM carries a pause out though its caller has hung up, and the undoing overtakes it."""
    await subject.serve(subject.versions.first)
    fake.engine.behaviour = replace(fake.engine.behaviour, pause_s=0.6)
    pauses = fake.engine.pauses
    await update(subject, Code.PAUSE_FAILED)
    assert (await subject.report()).stage is Stage.OPEN
    honest(fake)

    async with asyncio.timeout(30):
        while fake.engine.pauses == pauses:  # noqa: ASYNC110 - the engine does it by and by
            await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        assert (await subject.complete(max_tokens=1)).status_code == 200

    report = await subject.report()
    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.first)
    assert (fake.engine.paused, fake.engine.gate.is_open) == (None, True)


async def test_a_pause_that_is_meant_is_not_ended(fake: Worker, subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PAUSE_PATH, subject.versions.first)

    await asyncio.sleep(0.5)

    assert ((await subject.report()).stage, fake.engine.paused) == (Stage.PAUSED, "keep")


@pytest.mark.parametrize(("lie", "code"), GRAVE.values(), ids=GRAVE)
async def test_a_failure_from_the_reload_on_is_doubt_and_a_good_version_leads_out(
    fake: Worker, subject: Subject, lie: dict[str, float], code: Code
) -> None:
    await subject.serve(subject.versions.first)
    fake.engine.behaviour = replace(fake.engine.behaviour, **lie)  # type: ignore[arg-type]

    await update(subject, code)

    report = await subject.report()
    assert (report.stage, report.proved) == (Stage.DOUBT, None)
    assert not fake.engine.gate.is_open
    assert not await subject.is_ready()
    await subject.refused(Code.ENGINE_IN_DOUBT, paths.RESUME_PATH, subject.versions.first)
    honest(fake)
    healed = await subject.serve(subject.versions.first)
    assert (healed.stage, healed.proved) == (Stage.OPEN, subject.versions.first)


@pytest.mark.parametrize(("lie", "code"), DEADLY.values(), ids=DEADLY)
async def test_an_engine_that_dies_comes_back_closed_on_its_boot_weights(
    fake: Worker, subject: Subject, lie: dict[str, Any], code: Code
) -> None:
    await subject.serve(subject.versions.first)
    boot = (await subject.report()).boot
    fake.engine.behaviour = replace(fake.engine.behaviour, **lie)

    await update(subject, code)

    down = await settled(fake, lambda report: report.stage is Stage.DOWN)
    assert (down.boot, down.proved) == (None, None)
    assert down.exits == Exits(version=subject.versions.second, operation="o", count=1)
    assert down.failure is not None
    assert "the engine exited while step-2 was loading" in down.failure.message
    await subject.refused(
        Code.ENGINE_UNREACHABLE, paths.UPDATE_WEIGHTS_PATH, subject.versions.second
    )
    honest(fake)
    await fake.restart_engine()
    back = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (back.installed, back.proved, back.failure) == (paths.BASE_VERSION, None, None)
    assert back.boot != boot
    assert back.exits == down.exits
    assert not await subject.is_ready()
    served = await subject.serve(subject.versions.first)
    assert (served.stage, served.exits) == (Stage.OPEN, None)


async def test_a_load_that_the_engine_ended_in_again_and_one_that_is_refused_are_kept_apart(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    for count in (1, 2):
        fake.engine.behaviour = replace(fake.engine.behaviour, dies_in_reload=True)
        await update(subject, Code.RELOAD_FAILED)
        honest(fake)
        await fake.restart_engine()
        back = await settled(fake, lambda report: report.stage is Stage.CLOSED)
        assert back.exits is not None
        assert (back.exits.version, back.exits.count) == (subject.versions.second, count)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_fails=True)

    await update(subject, Code.RELOAD_FAILED)

    report = await subject.report()
    assert (report.stage, report.exits) == (Stage.DOUBT, None)


async def test_old_weights_behind_a_good_answer_are_found_by_the_proof_of_others(
    fake: Worker, subject: Subject
) -> None:
    proof = (await subject.serve(subject.versions.second)).proof
    assert proof is not None
    await subject.serve(subject.versions.first)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_keeps_old=True)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)

    await subject.refused(
        Code.PROOF_FAILED,
        paths.UPDATE_WEIGHTS_PATH,
        subject.versions.second,
        expected=proof.model_dump(mode="json"),
    )

    assert (await subject.report()).stage is Stage.DOUBT


async def test_an_engine_counts_as_up_once_it_has_answered_a_first_time(
    fake: Worker, subject: Subject
) -> None:
    fake.engine.behaviour = Behaviour(token_s=0.2)

    await fake.restart_engine()

    await settled(fake, lambda report: report.stage is Stage.DOWN)
    await asyncio.sleep(0.2)
    assert (await subject.report()).stage is Stage.DOWN
    honest(fake)
    await settled(fake, lambda report: report.stage is Stage.CLOSED)


async def test_a_restarted_engine_is_out_of_service_until_it_is_proved_again(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)

    await fake.restart_engine()

    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (report.proved, report.installed) == (None, paths.BASE_VERSION)
    assert not await subject.is_ready()
    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.first)
    assert report.proved == subject.versions.first


async def test_an_engine_that_restarts_within_a_command_voids_the_command(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_s=1.0)
    command = asyncio.create_task(subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second))
    await settled(fake, lambda report: report.stage is Stage.LOADING)

    fake.engine.gate.boot = "another"

    assert (await command).json()["code"] == Code.ENGINE_RESTARTED
    report = await settled(fake, lambda report: report.stage is Stage.CLOSED)
    assert (report.boot, report.proved) == ("another", None)


async def test_a_gate_that_another_client_moved_is_corrected(
    fake: Worker, subject: Subject
) -> None:
    fake.engine.gate.open()
    async with asyncio.timeout(30):
        while fake.engine.gate.is_open:  # noqa: ASYNC110 - the sidecar's watch closes it
            await asyncio.sleep(0.01)
    await subject.serve(subject.versions.first)
    fake.engine.gate.close()

    async with asyncio.timeout(30):
        assert (await subject.complete(max_tokens=1)).status_code == 200


@pytest.mark.parametrize("path", [paths.RELOAD_PATH, paths.UPDATE_WEIGHTS_PATH, paths.PAUSE_PATH])
async def test_during_a_command_another_is_rejected_and_a_repeat_joins(
    fake: Worker, subject: Subject, path: str
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_s=0.4)
    operation = uuid4().hex
    both = [
        asyncio.create_task(
            subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second, operation=operation)
        )
        for _caller in range(2)
    ]
    running = (await settled(fake, lambda report: report.running is not None)).running

    await subject.refused(Code.BUSY, path, subject.versions.first)

    assert running is not None
    assert running.operation == operation
    first, second = await asyncio.gather(*both)
    assert first.content == second.content
    assert first.status_code == 200


async def test_a_caller_that_leaves_does_not_cut_the_change(fake: Worker, subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    fake.engine.behaviour = replace(fake.engine.behaviour, reload_s=1.0)
    call = asyncio.create_task(subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second))
    await settled(fake, lambda report: report.stage is Stage.LOADING)

    await given_up(call)

    await settled(fake, lambda report: report.proved == subject.versions.second)
