"""The operator's contacts with a real sidecar: lost answers, numbers, and later drivers."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from rlfleet_contract import api
from rlfleet_contract.models import Stage
from rlfleet_operator.contacts import Contacts
from rlfleet_operator.core.actions import Command, Prepare, Update
from rlfleet_operator.core.world import Worker as Known
from rlfleet_operator.wire import Taken
from tests import fleets, workers
from tests.contract.conftest import TOKEN
from tests.contract.subject import Subject
from tests.fakes.engine import Behaviour
from tests.fakes.serving import Listener
from tests.fakes.worker import Worker
from tests.patience import Signs, undisturbed

NAME = "qwen-0"
ROLLOUT = fleets.fleet().spec.rollout


class Wire:
    """A gateway before the sidecar that can lose its answers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.loses: str | None = None
        """The path whose answers are lost."""
        self.signs = Signs()
        """What was carried."""
        self.listener = Listener(self._carry, "127.0.0.1", 0)

    async def _carry(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        async with self._worker.client() as client:
            request = client.request(
                scope["method"], scope["path"], content=message["body"], headers=headers
            )
            answer = await self.signs.give(request)
        is_lost = self.loses == scope["path"]
        status, body = (
            (504, b"gateway timeout") if is_lost else (answer.status_code, answer.content)
        )
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


@dataclass
class Driven:
    """One worker as one driver knows it."""

    contacts: Contacts
    wire: Wire
    journal: Path

    def command(self, action: Command) -> None:
        self.contacts.command(action, ROLLOUT)

    @property
    def known(self) -> Known:
        return self.contacts.worker(NAME, 0, None)

    @property
    def heard(self) -> Any:
        return json.loads(self.journal.read_text())["heard"]

    async def until(self, is_so: Callable[[Known], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so(self.known):  # noqa: ASYNC110 - it is remote
                await asyncio.sleep(0.02)


async def token() -> str:
    return TOKEN


@pytest.fixture
async def driven(fake: Worker, subject: Subject, tmp_path: Path) -> AsyncIterator[Driven]:
    """A driver of epoch 3 and its worker, which serves the first version."""
    await subject.serve(subject.versions.first)
    wire = Wire(fake)
    await wire.listener.start()
    taken = Taken("f-1", 3)
    contacts = Contacts(
        asyncio.Semaphore(4), 0.1, lambda: None, token, token, lambda: taken, lambda: taken.epoch
    )
    pod = workers.pod(0, address="127.0.0.1")
    await contacts.follow({NAME: pod}, wire.listener.port)
    yield Driven(contacts, wire, tmp_path / "pod" / "state" / "worker.json")
    await contacts.close()
    await wire.listener.stop()


def to(version: str) -> Update:
    return Update(NAME, version, "rollout-1", None)


async def prepared(driven: Driven, version: str) -> None:
    driven.command(Prepare(NAME, version, "rollout-1"))
    await driven.until(
        lambda known: (
            known.calling is None and known.report is not None and known.report.prepared == version
        )
    )


async def test_a_command_whose_answer_was_lost_is_repeated_and_has_one_effect(
    fake: Worker, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    driven.wire.loses = api.UPDATE_WEIGHTS_PATH
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    numbers, flushes = driven.heard, fake.engine.flushes
    assert numbers["sequence"] == 2
    driven.wire.loses = None

    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)

    assert driven.heard == numbers
    assert fake.engine.flushes == flushes == 2
    assert driven.known.report is not None
    assert driven.known.report.proved == "step-2"


async def test_an_old_answer_is_not_taken_for_how_the_worker_is_now(
    fake: Worker, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    driven.wire.loses = api.UPDATE_WEIGHTS_PATH
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    driven.wire.loses = None
    await fake.restart_engine()
    await driven.until(lambda known: known.report is not None and known.report.proved is None)
    seen: set[str | None] = set()

    def is_answered(known: Known) -> bool:
        seen.add(None if known.report is None else known.report.proved)
        return known.calling is None

    driven.command(to("step-2"))
    await driven.until(is_answered)

    assert seen == {None}


async def test_a_failure_that_was_told_is_followed_by_a_new_number(
    fake: Worker, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    fake.engine.behaviour = Behaviour(pause_fails=True)
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    fake.engine.behaviour = Behaviour()

    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)

    assert driven.heard["sequence"] == 3
    assert driven.known.report is not None
    assert driven.known.report.proved == "step-2"


async def test_nothing_more_is_sent_to_a_worker_that_has_a_later_driver(
    subject: Subject, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    counted = REGISTRY.get_sample_value("rlfleet_stale_epochs_total") or 0.0
    await subject.admin.get(api.STATE_PATH, headers={api.EPOCH_HEADER: "4"})

    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    before = driven.journal.read_text()
    for _time in range(3):
        driven.command(to("step-2"))
        assert driven.known.calling is None

    assert driven.journal.read_text() == before
    assert driven.heard["epoch"] == 4
    assert REGISTRY.get_sample_value("rlfleet_stale_epochs_total") == counted + 1
    assert (await subject.report()).proved == subject.versions.first


async def test_a_drivers_questions_are_the_heartbeat_that_keeps_its_change(
    subject: Subject, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    # A worker in a change is asked twice a second.
    ttl_s, numbers = 1.0, count(99)

    async def known() -> Stage | None:
        fence = {"fleet": "f-1", "pod": "p-0", "epoch": 3, "sequence": next(numbers)}
        pause = {"ttl_s": ttl_s, "operation": "rollout-1", "fence": fence}
        signs = driven.wire.signs = Signs()
        await signs.give(subject.ok(api.PAUSE_PATH, subject.versions.second, **pause))
        paused_until = asyncio.get_running_loop().time() + ttl_s * 2.5
        await driven.until(lambda _: asyncio.get_running_loop().time() > paused_until)
        assert driven.known.report is not None
        return driven.known.report.stage if signs.longest_s < ttl_s else None

    assert await undisturbed(known) is Stage.PAUSED

    await driven.contacts.close()
    async with asyncio.timeout(30):
        while (await subject.report()).stage is Stage.PAUSED:  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.05)
