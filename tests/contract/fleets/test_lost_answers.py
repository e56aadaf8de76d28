"""The operator's contacts with a real sidecar: lost answers, numbers, and later drivers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Prepare, Update, WeightsCommand
from rlfleet_operator.core.model.world import Worker as Known
from rlfleet_operator.workers.pool import WorkerPool
from rlfleet_operator.workers.requests import DrivenFleet
from tests import fleets, workers
from tests.contract.conftest import TOKEN
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.serving import Listener
from tests.fakes.worker import Worker
from tests.journals import journal_of
from tests.patience import Signs, undisturbed

NAME = "qwen-0"
EARLIER = DrivenFleet("f-1", 3)
POD = workers.pod(0, address="127.0.0.1")
ROLLOUT = fleets.fleet().spec.rollout


class Wire:
    """A gateway before the sidecar that can lose its answers, or bring requests late."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.loses: str | None = None
        """The path whose answers are lost."""
        self.deaf_to: set[str] = set()
        """The methods of what does not arrive."""
        self.held: asyncio.Event | None = None
        """Until when answers to reads without a cancellation are delayed."""
        self.is_holding = False
        self._late: list[tuple[str, bytes, dict[str, str]]] = []
        self.signs = Signs()
        """What was carried."""
        self.listener = Listener(self._carry, "127.0.0.1", 0)

    async def _carry(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["method"] in self.deaf_to:
            self._late.append((scope["path"], message["body"], headers))
            await _answer(send, 504, b"gateway timeout")
            return
        async with self._worker.client() as client:
            request = client.request(
                scope["method"], scope["path"], content=message["body"], headers=headers
            )
            answer = await self.signs.give(request)
        is_lost = self.loses == scope["path"]
        status, body = (
            (504, b"gateway timeout") if is_lost else (answer.status_code, answer.content)
        )
        if self.held is not None and scope["method"] == "GET" and paths.OVER_HEADER not in headers:
            self.is_holding = True
            await self.held.wait()
        await _answer(send, status, body)

    async def bring_late(self) -> list[int]:
        """Deliver the delayed commands; returns their answers."""
        commands = [one for one in self._late if one[0] == paths.UPDATE_WEIGHTS_PATH]
        async with self._worker.client() as client:
            return [
                (await client.post(path, content=body, headers=headers)).status_code
                for path, body, headers in commands
            ]


async def _answer(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Driven:
    """One worker as one driver knows it."""

    contacts: WorkerPool
    wire: Wire
    state: Path
    taken: DrivenFleet = EARLIER

    def command(self, action: WeightsCommand) -> None:
        self.contacts.command(action, ROLLOUT)

    @property
    def known(self) -> Known:
        return self.contacts.worker(NAME, 0, None)

    @property
    def seen(self) -> Any:
        return journal_of(self.state)["heard"]

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
    contacts = WorkerPool(
        asyncio.Semaphore(4),
        0.1,
        lambda: None,
        token,
        token,
        lambda: made.taken,
        lambda: made.taken.epoch,
    )
    made = Driven(contacts, wire, tmp_path / "pod" / "state")
    await contacts.follow({NAME: POD}, wire.listener.port)
    yield made
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


async def test_a_command_whose_answer_was_lost_is_over_and_has_one_effect(
    fake: Worker, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    driven.wire.loses = paths.UPDATE_WEIGHTS_PATH
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    flushes = fake.engine.flushes
    assert (driven.seen["sequence"], driven.seen["over"]) == (2, 2)
    driven.wire.loses = None

    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)

    assert driven.seen["sequence"] == 3
    assert fake.engine.flushes == flushes == 2
    assert driven.known.report is not None
    assert driven.known.report.proved == "step-2"


async def test_a_worker_counts_as_free_once_a_command_that_was_given_up_comes_too_late(
    driven: Driven, subject: Subject
) -> None:
    await prepared(driven, "step-2")
    driven.wire.deaf_to = {"GET", "POST"}
    driven.command(to("step-2"))
    await driven.until(lambda known: not known.reachable)
    driven.wire.deaf_to = set()
    seen: list[Known] = []

    def is_free(known: Known) -> bool:
        seen.append(known)
        return known.reachable and known.calling is None

    await driven.until(is_free)

    assert {known.calling for known in seen[:-1]} == {Verb.RELOAD}
    assert driven.seen["over"] == 2
    assert await driven.wire.bring_late() == [409]
    assert (await subject.report()).proved == subject.versions.first


async def test_a_worker_seen_again_learns_which_commands_are_cancelled(
    driven: Driven, subject: Subject
) -> None:
    await prepared(driven, "step-2")
    driven.wire.deaf_to = {"GET", "POST"}
    driven.command(to("step-2"))
    await driven.until(lambda known: not known.reachable)
    driven.wire.deaf_to = set()

    await driven.contacts.follow({}, driven.wire.listener.port)
    await driven.contacts.follow({NAME: POD}, driven.wire.listener.port)
    await driven.until(lambda known: known.reachable)

    assert await driven.wire.bring_late() == [409]
    assert (await subject.report()).proved == subject.versions.first


async def test_an_older_answer_is_not_taken_for_how_the_worker_stands_now(
    driven: Driven, subject: Subject
) -> None:
    await prepared(driven, "step-2")
    driven.wire.held = asyncio.Event()
    await driven.until(lambda _: driven.wire.is_holding)
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)
    driven.wire.deaf_to = {"POST"}
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    seen: list[str | None] = []
    looked_until = asyncio.get_running_loop().time() + 1

    def is_over(known: Known) -> bool:
        seen.append(None if known.report is None else known.report.prepared)
        return asyncio.get_running_loop().time() > looked_until

    driven.wire.held.set()
    await driven.until(is_over)

    assert set(seen) == {subject.versions.first}


async def test_an_earlier_drivers_worker_counts_as_free_once_it_knows_the_later_one(
    driven: Driven, subject: Subject
) -> None:
    await prepared(driven, "step-2")
    driven.taken = DrivenFleet("f-1", 4)

    driven.contacts.lead(4)

    assert driven.known.calling is Verb.RELOAD
    assert not driven.contacts.have_all_answered()
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    assert driven.contacts.have_all_answered()
    assert (driven.seen["epoch"], driven.seen["sequence"]) == (4, -1)
    fence = {"fleet": "f-1", "pod": "p-0", "epoch": 3, "sequence": 9}
    late = {"operation": "rollout-1", "version": "step-2", "fence": fence}
    assert (await subject.admin.post(paths.UPDATE_WEIGHTS_PATH, json=late)).status_code == 409


async def test_a_reported_failure_is_followed_by_a_new_number(fake: Worker, driven: Driven) -> None:
    await prepared(driven, "step-2")
    fake.engine.behaviour = Behaviour(pause_fails=True)
    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    fake.engine.behaviour = Behaviour()

    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)

    assert driven.seen["sequence"] == 3
    assert driven.known.report is not None
    assert driven.known.report.proved == "step-2"


async def test_nothing_more_is_sent_to_a_worker_that_has_a_later_driver(
    subject: Subject, driven: Driven
) -> None:
    await prepared(driven, "step-2")
    counted = REGISTRY.get_sample_value("rlfleet_stale_epochs_total") or 0.0
    await subject.admin.get(paths.STATE_PATH, headers={paths.EPOCH_HEADER: "4"})

    driven.command(to("step-2"))
    await driven.until(lambda known: known.calling is None)
    before = journal_of(driven.state)
    for _time in range(3):
        driven.command(to("step-2"))
        assert driven.known.calling is None

    assert journal_of(driven.state) == before
    assert driven.seen["epoch"] == 4
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
        await signs.give(subject.ok(paths.PAUSE_PATH, subject.versions.second, **pause))
        paused_until = asyncio.get_running_loop().time() + ttl_s * 2.5
        await driven.until(lambda _: asyncio.get_running_loop().time() > paused_until)
        assert driven.known.report is not None
        # A driver that stood still for the whole time left no gap, and knows an old report.
        is_calm = max(signs.longest_s, signs.quiet_s) < ttl_s
        return driven.known.report.stage if is_calm else None

    assert await undisturbed(known) is Stage.PAUSED

    await driven.contacts.close()
    async with asyncio.timeout(30):
        while (await subject.report()).stage is Stage.PAUSED:  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.05)
