"""A change in parts, as a driver asks for it that leads many workers at once."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, Timings, WorkerReport
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker


class Parts:
    """One operation on a worker that serves the first version."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.operation = uuid4().hex
        self.old, self.new = subject.versions.first, subject.versions.second

    async def begin(self) -> WorkerReport:
        """Serve the old version and prepare the new one."""
        report = await self._subject.serve(self.old)
        await self._subject.ok(paths.PREPARE_PATH, self.new, operation=self.operation)
        return report

    async def through(self, step: str, **fields: Any) -> WorkerReport:
        """Ask for the change as far as this step."""
        return await self._subject.ok(
            paths.UPDATE_WEIGHTS_PATH, self.new, operation=self.operation, through=step, **fields
        )


async def test_each_part_ends_where_it_says_and_a_repeat_does_nothing_more(
    subject: Subject,
) -> None:
    parts = Parts(subject)
    await parts.begin()

    for step, stage, proved in (
        ("Pause", Stage.PAUSED, parts.old),
        ("Verify", Stage.PROVED, parts.new),
        ("Resume", Stage.OPEN, parts.new),
    ):
        for _time in range(2):
            report = await parts.through(step)
            assert (report.stage, report.proved) == (stage, proved)
            assert (report.paused_s is None) is (stage is Stage.OPEN)
    assert report.last_change is not None
    assert report.last_change.operation == parts.operation


async def test_a_worker_that_stands_further_is_left_there(subject: Subject) -> None:
    parts = Parts(subject)
    await parts.begin()
    await parts.through("Verify")

    assert (await parts.through("Pause")).stage is Stage.PROVED
    await parts.through("Resume")
    for step in ("Pause", "Verify"):
        assert (await parts.through(step)).stage is Stage.OPEN


async def test_requests_wait_from_the_first_part_to_the_last(subject: Subject) -> None:
    parts = Parts(subject)
    await parts.begin()
    await parts.through("Pause")

    waiting = asyncio.create_task(subject.complete(max_tokens=2))
    await parts.through("Verify")
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done, "the gate is closed over a proved version"
    await parts.through("Resume")

    assert (await waiting).status_code == 200


async def test_the_window_spans_all_parts_and_the_steps_are_theirs(subject: Subject) -> None:
    parts = Parts(subject)
    await parts.begin()
    await parts.through("Pause")
    await asyncio.sleep(0.3)
    await parts.through("Pause")
    paused_s = (await subject.report()).paused_s
    assert paused_s is not None
    assert paused_s >= 0.3
    await parts.through("Verify")
    await asyncio.sleep(0.2)

    change = (await parts.through("Resume")).last_change

    assert change is not None
    timings = change.timings
    assert timings.window_s >= 0.5 + timings.reload_s + timings.verify_s
    assert min(timings.prepare_s, timings.reload_s, timings.verify_s, timings.resume_s) > 0
    assert _steps_s(timings) <= timings.window_s - 0.4, "the wait between parts is no step's"


async def test_the_way_out_of_doubt_is_a_window_of_its_own(subject: Subject, fake: Worker) -> None:
    parts = Parts(subject)
    await parts.begin()
    begun = time.monotonic()
    fake.engine.behaviour = Behaviour(nan_logprobs=True)
    await subject.refused(Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, parts.new)
    await asyncio.sleep(0.6)
    fake.engine.behaviour = Behaviour()

    change = (await subject.serve(parts.old)).last_change

    assert change is not None
    assert 0 < change.timings.window_s < time.monotonic() - begun - 0.6


async def test_a_window_that_was_undone_counts_for_no_later_one(subject: Subject) -> None:
    parts = Parts(subject)
    await parts.begin()
    await parts.through("Pause")
    await asyncio.sleep(0.6)
    undone = await subject.ok(paths.RESUME_PATH, parts.old, operation=parts.operation)
    assert undone.paused_s is None

    change = (await parts.through("Resume")).last_change

    assert change is not None
    spent = change.timings
    assert spent.reload_s + spent.verify_s < spent.window_s + spent.withheld_s
    assert spent.window_s < _steps_s(spent) + 0.5


def _steps_s(spent: Timings) -> float:
    return spent.pause_s + spent.flush_s + spent.reload_s + spent.verify_s + spent.resume_s


@pytest.mark.parametrize("way", ["resume", "update"])
async def test_a_pause_of_many_steps_is_undone_on_the_old_version(
    subject: Subject, way: str
) -> None:
    parts = Parts(subject)
    before = await parts.begin()
    answer = await subject.complete(max_tokens=4)
    await parts.through("Pause")
    for path in (paths.FLUSH_PATH, paths.PAUSE_PATH, paths.FLUSH_PATH):
        await subject.ok(path, parts.new, operation=parts.operation)
    waiting = asyncio.create_task(subject.complete(max_tokens=4))

    path = {"resume": paths.RESUME_PATH, "update": paths.UPDATE_WEIGHTS_PATH}[way]
    after = await subject.ok(path, parts.old, operation=parts.operation)

    told = after.model_dump(include={"prepared_bytes", "staged", "in_flight", "serial"})
    unlike = {"prepared": parts.new, **told}
    assert after == before.model_copy(update=unlike)
    assert await subject.is_ready()
    for reply in (await waiting, await subject.complete(max_tokens=4)):
        assert reply.json()["choices"][0]["text"] == answer.json()["choices"][0]["text"]


async def test_a_part_that_cannot_continue_causes_no_pause(subject: Subject) -> None:
    await subject.serve(subject.versions.first)

    await subject.refused(
        Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second, through="Pause"
    )

    assert (await subject.report()).stage is Stage.OPEN


@pytest.mark.parametrize("step", ["Prepare", "Flush", "Reload", "pause"])
async def test_only_steps_that_leave_a_safe_place_end_a_part(subject: Subject, step: str) -> None:
    body = {"operation": "o", "version": "step-1", "through": step}
    reply = await subject.admin.post(paths.UPDATE_WEIGHTS_PATH, json=body)

    assert (reply.status_code, reply.json()["code"]) == (400, Code.INVALID_REQUEST)
    assert "through" in reply.json()["message"]
