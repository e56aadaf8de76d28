"""The operator's side of a watch: news arrive by themselves; otherwise it polls as before."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.commands import PauseRequest, Verb
from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.errors import Unreachable
from rlfleet_operator.workers import connection as connections
from rlfleet_operator.workers import pool as pools
from rlfleet_operator.workers import silence
from rlfleet_operator.workers.client import WorkerClient
from rlfleet_operator.workers.connection import WorkerConnection
from rlfleet_operator.workers.pool import WorkerPool
from rlfleet_operator.workers.requests import DrivenFleet
from tests import workers
from tests.contract.conftest import TOKEN, settled
from tests.contract.subject import Subject
from tests.fakes.serving import Listener
from tests.fakes.worker import Worker

NAME = "qwen-0"
DRIVER = DrivenFleet("f-1", 1)
AGES = 3600.0


async def token() -> str:
    return TOKEN


def pool() -> WorkerPool:
    """Make contacts that poll a worker at rest once an hour."""
    return WorkerPool(
        asyncio.Semaphore(4), AGES, lambda: None, token, token, lambda: DRIVER, lambda: DRIVER.epoch
    )


def contact_of(contacts: WorkerPool) -> WorkerConnection:
    return contacts._by_name[NAME]  # noqa: SLF001 - there is one


@pytest.fixture
async def contacts(fake: Worker) -> AsyncIterator[WorkerPool]:
    kept = pool()
    host, _, port = fake.admin_url.removeprefix("http://").partition(":")
    await kept.follow({NAME: workers.pod(0, address=host)}, int(port))
    yield kept
    await kept.close()


async def until(is_so: Callable[[], object], limit_s: float = 30.0) -> None:
    async with asyncio.timeout(limit_s):
        while not is_so():  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.02)


async def watched(contacts: WorkerPool) -> WorkerConnection:
    await until(lambda: contact_of(contacts).is_watched)
    return contact_of(contacts)


async def test_news_arrive_without_a_poll(
    fake: Worker, subject: Subject, contacts: WorkerPool
) -> None:
    contact = await watched(contacts)
    await settled(fake, lambda report: report.stage is Stage.CLOSED)
    await asyncio.sleep(0.1)
    contact.asking.cancel()  # type: ignore[union-attr]

    await subject.serve(subject.versions.first)

    await until(lambda: contact.report is not None and contact.report.stage is Stage.OPEN)
    assert contact.report is not None
    assert contact.report.proved == subject.versions.first


async def test_a_watch_that_breaks_is_a_poll_at_once(fake: Worker, contacts: WorkerPool) -> None:
    contact = await watched(contacts)
    session = contact.report.session if contact.report else ""

    await fake.stop_sidecar()
    await until(lambda: not contact.reachable, 10)
    await fake.start_sidecar()

    await until(lambda: contact.reachable and contact.is_watched)
    assert contact.report is not None
    assert contact.report.session != session


class Sidecar:
    """Answers state requests at once, and a watch as the test says."""

    def __init__(self) -> None:
        self.polls = 0
        self.stage = Stage.OPEN
        self.running: Verb | None = None
        self.pod_uid: str | None = None
        self.watch: tuple[int, bytes] = (404, b"")
        self.hangs = self.is_failing = False
        self.signs = self.is_late = False
        """Whether a watch gives signs of life, and whether the last bytes of a line come later."""
        self.session = "s"
        self.listener = Listener(self._answer, "127.0.0.1", 0)

    @property
    def body(self) -> bytes:
        verb = self.running
        running = verb and Running(verb=verb, operation="rollout-1", version="step-2")
        report = workers.report(
            self.stage, pod_uid=self.pod_uid, session=self.session, running=running
        )
        return report.model_dump_json().encode()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        is_watch = scope["path"] == paths.WATCH_PATH
        self.polls += not is_watch
        status, body = self.watch if is_watch else (503 if self.is_failing else 200, self.body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        late = body[-2:] if is_watch and self.is_late else b""
        first = body[: len(body) - len(late)]
        await send({"type": "http.response.body", "body": first, "more_body": is_watch})
        while late or (is_watch and self.signs):
            await asyncio.sleep(0.1)
            await send({"type": "http.response.body", "body": late or b"\n", "more_body": True})
            late = b""
        if is_watch and self.hangs:
            await receive()


@pytest.fixture
async def sidecar(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sidecar]:
    monkeypatch.setattr(connections, "_RESTLESS_S", 0.05)
    made = Sidecar()
    await made.listener.start()
    yield made
    await made.listener.stop()


@pytest.fixture
async def of_it(sidecar: Sidecar) -> AsyncIterator[WorkerPool]:
    kept = pool()
    yield kept
    await kept.close()


async def follow(contacts: WorkerPool, sidecar: Sidecar, **fields: Any) -> WorkerConnection:
    # Not ready yet, so that a worker that is not watched is polled twenty times a second.
    pod = workers.pod(0, address="127.0.0.1", **({"ready": False} | fields))
    await contacts.follow({NAME: pod}, sidecar.listener.port)
    return contact_of(contacts)


async def test_a_sidecar_of_an_earlier_release_is_polled(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    contact = await follow(of_it, sidecar)
    await asyncio.sleep(2)

    assert sidecar.polls > 10
    assert contact.reachable
    assert not contact.is_watched


async def test_a_watched_worker_is_polled_for_its_heartbeat_alone(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar)
    await watched(of_it)
    await asyncio.sleep(0.2)
    polls = sidecar.polls

    await asyncio.sleep(1)

    assert (sidecar.polls, contact.reachable) == (polls, True)


@pytest.mark.parametrize(
    ("stage", "running", "gets_all"),
    [
        (Stage.OPEN, None, False),
        (Stage.OPEN, Verb.PREPARE, False),
        (Stage.OPEN, Verb.PAUSE, True),
        (Stage.PAUSED, None, True),
    ],
)
async def test_a_worker_that_serves_gets_few_heartbeats_and_one_in_a_change_gets_all(
    sidecar: Sidecar,
    of_it: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    stage: Stage,
    running: Verb | None,
    *,
    gets_all: bool,
) -> None:
    monkeypatch.setattr(connections, "_BEAT_S", 0.1)
    monkeypatch.setattr(of_it, "_poll_s", 0.1)
    sidecar.stage, sidecar.running = stage, running
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar, ready=stage is Stage.OPEN)
    await watched(of_it)
    await asyncio.sleep(0.3)
    polls, begun = sidecar.polls, time.monotonic()

    await asyncio.sleep(1)

    # The first may have been late, and the last a moment early.
    beats, most = sidecar.polls - polls, (time.monotonic() - begun) / 0.1 + 2
    assert 4 < beats <= most if gets_all else beats == 0
    assert contact.is_watched


@pytest.mark.parametrize(("running", "is_asked"), [(None, True), (Verb.RELOAD, False)])
async def test_a_watched_worker_is_asked_in_a_change_only_if_it_is_idle_as_its_answer_may_be_lost(
    sidecar: Sidecar,
    of_it: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    running: Verb | None,
    is_asked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr(silence, "_LOOK_S", 0.1)
    monkeypatch.setattr(connections, "LOST_S", 0.3)
    sidecar.running = running
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar, ready=True)
    await watched(of_it)
    await asyncio.sleep(0.3)
    polls = sidecar.polls
    contact.command = asyncio.create_task(asyncio.sleep(AGES))
    contact.calling, contact.idle_since = Verb.RELOAD, time.monotonic()

    command = contact.command

    if is_asked:
        await until(command.cancelled)
    else:
        await asyncio.sleep(1.5)

    assert (sidecar.polls > polls, command.cancelled()) == (is_asked, is_asked)
    command.cancel()


async def test_a_watched_worker_whose_command_was_given_up_is_asked_at_once(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar, ready=True)
    await watched(of_it)
    polls = sidecar.polls
    fence = Fence(fleet="f-1", pod="p-0", epoch=1, sequence=7)

    contact.give_up(PauseRequest(version="step-2", operation="rollout-1", fence=fence))

    await until(lambda: contact.is_fenced, 3)
    assert sidecar.polls > polls


async def test_a_worker_that_looks_for_versions_is_asked_to_with_each_heartbeat(
    sidecar: Sidecar, of_it: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BEAT_S", 0.1)
    monkeypatch.setattr(of_it, "_poll_s", 0.1)
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    await follow(of_it, sidecar, ready=True)
    await watched(of_it)
    of_it.look({NAME: None}, None)
    polls = sidecar.polls

    await until(lambda: sidecar.polls > polls + 3, 10)


async def test_a_worker_that_rests_is_asked_at_last(
    sidecar: Sidecar, of_it: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BEAT_S", 0.1)
    monkeypatch.setattr(of_it, "_poll_s", 0.1)
    monkeypatch.setattr(pools, "_REST_S", 1.0)
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    await follow(of_it, sidecar, ready=True)
    await watched(of_it)
    polls = sidecar.polls

    await until(lambda: sidecar.polls > polls + 1, 10)


async def test_a_watched_worker_that_misses_a_request_is_asked_again_soon(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n\n"), True
    contact = await follow(of_it, sidecar)
    await watched(of_it)
    sidecar.is_failing = True
    contact.hurried.set()
    await until(lambda: not contact.reachable, 10)

    sidecar.is_failing = False

    await until(lambda: contact.reachable, 10)
    assert contact.is_watched, "the same watch"


async def test_a_watched_worker_that_may_get_a_late_command_is_asked_soon(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar)
    await watched(of_it)
    assert of_it._interval(contact) > 10  # noqa: SLF001 - the next request would end the case

    contact.over = Place(1, 7)

    assert of_it._interval(contact) < 1  # noqa: SLF001


async def test_watched_workers_get_a_heartbeat_as_soon_as_heartbeats_begin(
    sidecar: Sidecar,
) -> None:
    epochs: list[int | None] = [None]
    kept = WorkerPool(
        asyncio.Semaphore(4), AGES, lambda: None, token, token, lambda: DRIVER, lambda: epochs[-1]
    )
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    await follow(kept, sidecar)
    await watched(kept)
    await asyncio.sleep(0.2)
    polls = sidecar.polls

    epochs.append(DRIVER.epoch)
    await follow(kept, sidecar)

    await until(lambda: sidecar.polls > polls, 10)
    await kept.close()


async def test_a_defect_in_a_watch_leaves_the_worker_polled(
    sidecar: Sidecar, of_it: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls_at: list[int] = []

    def confirm(contact: WorkerConnection, now: float) -> None:
        polls_at.append(sidecar.polls)
        raise RuntimeError(f"{contact.pod.name} at {now}")

    monkeypatch.setattr(WorkerConnection, "confirm", confirm)
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n\n"), True
    contact = await follow(of_it, sidecar)

    await until(lambda: polls_at and sidecar.polls > polls_at[0] + 5, 10)
    assert not contact.is_watched


async def test_a_silent_watch_ends_and_the_worker_is_polled(
    sidecar: Sidecar, of_it: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a connection whose other end is gone without a word."""
    monkeypatch.setattr(silence, "SILENCE_S", 0.3)
    monkeypatch.setattr(silence, "_LOOK_S", 0.1)
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar)
    await watched(of_it)
    sidecar.stage = Stage.DOUBT

    await until(lambda: contact.report is not None and contact.report.stage is Stage.DOUBT, 10)


async def test_signs_of_life_keep_a_watch_and_confirm_its_report(
    sidecar: Sidecar, of_it: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENCE_S", 0.5)
    monkeypatch.setattr(silence, "_LOOK_S", 0.1)
    sidecar.watch, sidecar.signs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar)
    await watched(of_it)
    polls, watch, answered_at = sidecar.polls, contact.watch, contact.answered_at

    await asyncio.sleep(2)

    assert (sidecar.polls, contact.is_watched) == (polls, True)
    assert contact.watch is watch
    assert contact.answered_at > answered_at + 1


async def test_a_line_whose_last_bytes_come_late_is_complete_with_them(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    sidecar.watch, sidecar.hangs, sidecar.is_late = (200, 2 * (sidecar.body + b"\n")), True, True
    contact = await follow(of_it, sidecar)
    await watched(of_it)
    received_at = contact.watch.received_at if contact.watch else 0.0

    await until(lambda: contact.watch and contact.watch.received_at > received_at, 3)


async def test_a_watch_ends_whose_sidecar_was_replaced_by_another(
    sidecar: Sidecar, of_it: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "_LOOK_S", 0.1)
    sidecar.watch, sidecar.signs = (200, sidecar.body + b"\n"), True
    contact = await follow(of_it, sidecar)
    first = (await watched(of_it)).watch
    sidecar.session, sidecar.watch = "another", (404, b"")

    contact.hurried.set()

    await until(lambda: contact.watch is not first, 3)
    assert contact.report is not None
    assert contact.report.session == "another"


async def test_a_watch_of_another_pod_at_the_same_address_teaches_nothing(
    sidecar: Sidecar, of_it: WorkerPool
) -> None:
    sidecar.pod_uid = "p-0"
    contact = await follow(of_it, sidecar)
    await until(lambda: contact.report is not None)
    sidecar.pod_uid = "p-9"
    sidecar.stage = Stage.DOUBT
    sidecar.watch, sidecar.hangs = (200, sidecar.body + b"\n"), True
    await asyncio.sleep(1.5)

    assert contact.report is not None
    assert (contact.report.pod_uid, contact.report.stage) == ("p-0", Stage.OPEN)
    assert not contact.is_watched


async def test_what_is_no_report_ends_the_watch(sidecar: Sidecar) -> None:
    sidecar.watch = (200, b"<html>\n")
    client = WorkerClient(f"http://127.0.0.1:{sidecar.listener.port}", asyncio.Semaphore(1))

    with pytest.raises(Unreachable, match="expected JSON of a sidecar"):
        await anext(client.watch(TOKEN))

    await client.close()


async def test_an_older_report_does_not_replace_a_newer_one() -> None:
    """A line may arrive after the answer to a command that ended later."""
    kept = pool()
    contact = WorkerConnection(
        WorkerClient("http://127.0.0.1:1", asyncio.Semaphore(1)), workers.pod()
    )

    def learn(stage: Stage, serial: int | None, session: str = "s") -> Stage:
        made = workers.report(stage, serial=serial, session=session)
        kept._learn(contact, made)  # noqa: SLF001 - as a watch, a poll and a command do
        assert contact.report is not None
        return contact.report.stage

    assert learn(Stage.OPEN, 7) is Stage.OPEN
    assert learn(Stage.LOADING, 6) is Stage.OPEN
    assert learn(Stage.LOADING, 8) is Stage.LOADING
    assert learn(Stage.DOUBT, 1, "another") is Stage.DOUBT, "a restarted sidecar counts again"
    assert learn(Stage.OPEN, None, "another") is Stage.OPEN, "an earlier release counts not"
    await contact.client.close()


async def test_a_sign_of_life_confirms_the_report() -> None:
    contact = WorkerConnection(
        WorkerClient("http://127.0.0.1:1", asyncio.Semaphore(1)), workers.pod()
    )
    contact.confirm(1.0)
    assert contact.answered_at == 0.0, "without a report there is nothing to confirm"
    contact.learn(workers.report(), 2.0)
    contact.confirm(time.monotonic())
    assert contact.answered_at > 2.0
    await contact.client.close()
