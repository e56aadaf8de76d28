"""A sidecar that is killed in a change: its engine's gate ends it, and the next one agrees.

The gate's deadline is the time to live and 5 s; nothing that was not proved answers.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.engine_transport import EngineTransport
from tests.contract.conftest import ended, settled
from tests.contract.sidecar.test_time_to_live import LATE_S, lead
from tests.contract.subject import Subject
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker
from tests.patience import seconds_until

LONG_S = 60
"""A time to live that does not run out in a test."""
SOON_S = 0.2
LATER_S = 5


class Line(httpx.AsyncBaseTransport):
    """A sidecar's way to its engine, which can be cut as if the sidecar were dead."""

    def __init__(self, dies: Callable[[], None]) -> None:
        self._dies = dies
        self._inner = EngineTransport()
        self._cut = asyncio.Event()
        self.left: int | None = None
        """How many changes of the engine it carries yet, before it is cut; None: all."""
        self.drops_reply = False
        """Whether it is cut when the last of them was made, and its reply is on its way."""

    def cut(self) -> None:
        if not self._cut.is_set():
            self._dies()
            self._cut.set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_last = False
        if self.left is not None and request.method == "POST" and not await _is_keeping(request):
            self.left -= 1
            is_last = self.left == 0
            if self.left < 0:
                self.cut()
        asking = asyncio.ensure_future(self._inner.handle_async_request(request))
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait({asking, cut}, return_when=asyncio.FIRST_COMPLETED)
            # Not by a look at the engine that ends while the last change is on its way.
            if self.drops_reply and is_last:
                self.cut()
            if self._cut.is_set():
                raise httpx.ConnectError("the sidecar is dead")
            return asking.result()
        finally:
            cut.cancel()
            if self._cut.is_set() or not asking.done():
                await _dropped(asking)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _dropped(asking: asyncio.Future[httpx.Response]) -> None:
    """End a request whose answer is not needed, and release its connection."""
    asking.cancel()
    try:
        reply = await asking
    except (asyncio.CancelledError, httpx.HTTPError):
        return
    await reply.aclose()


async def _is_keeping(request: httpx.Request) -> bool:
    return request.url.path == paths.GATE_PATH and b'"keep"' in await request.aread()


class Mortal(Worker):
    """A worker whose sidecar can be killed: nothing that it does afterwards has an effect."""

    _line: Line
    _lives = 0

    def _way(self) -> httpx.AsyncBaseTransport:
        self._line = Line(self._keep_what_is_written)
        return self._line

    def cut_after(self, posts: int, *, drops_reply: bool = False) -> None:
        self._line.left, self._line.drops_reply = posts, drops_reply

    def _keep_what_is_written(self) -> None:
        before = self._settings.get("state_dir", self._scratch / "state")
        self._lives += 1
        self._settings["state_dir"] = self._scratch / f"state-{self._lives}"
        shutil.copytree(before, self._settings["state_dir"])

    @property
    def journal(self) -> Path:
        """Where the next sidecar finds its journal."""
        state: Path = self._settings["state_dir"]
        return state / "worker.json"

    @property
    def has_engine(self) -> bool:
        return self._engine_listener is not None

    async def kill_sidecar(self) -> None:
        self._line.cut()
        await self.stop_sidecar()


@pytest.fixture
def kind() -> type[Worker]:
    return Mortal


async def killed_in_reload(fake: Mortal, subject: Subject) -> None:
    """Kill the sidecar while the engine loads; the engine continues for a while."""
    await lead(subject, Stage.PAUSED, ttl_s=LONG_S)
    fake.engine.behaviour = Behaviour(reload_s=0.2)
    common: dict[str, Any] = {"operation": "the-change"}
    going = asyncio.create_task(subject.send(paths.RELOAD_PATH, subject.versions.second, **common))
    await subject.until(lambda report: report.stage is Stage.LOADING)
    await asyncio.sleep(0.05)
    await fake.kill_sidecar()
    await asyncio.gather(going, return_exceptions=True)


@pytest.fixture
async def mortal(fake: Worker) -> Mortal:
    assert isinstance(fake, Mortal)
    return fake


def shorten(mortal: Mortal, rest_s: float) -> None:
    """Let the gate's deadline be near, which was the time to live and a little more."""
    gate = mortal.engine.gate
    assert LONG_S * 0.8 < (gate.deadline.rest_s or 0) < LONG_S + LATER_S + 1
    with gate.locked():
        gate.deadline.renew(rest_s)


async def held_until(reply: "asyncio.Task[httpx.Response]") -> float:
    async def is_answered() -> bool:
        return reply.done()

    return await seconds_until(is_answered)


@pytest.mark.parametrize(("stage", "which"), [(Stage.PAUSED, "first"), (Stage.PROVED, "second")])
async def test_the_gate_opens_over_what_was_proved_when_the_sidecar_stays_dead(
    mortal: Mortal, subject: Subject, stage: Stage, which: str
) -> None:
    await subject.serve(subject.versions.first)
    mortal.engine.behaviour = Behaviour(token_s=0.02)
    frozen = asyncio.create_task(subject.complete(max_tokens=20))
    await asyncio.sleep(0.05)
    await lead(subject, stage, ttl_s=LONG_S)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))

    await mortal.kill_sidecar()
    shorten(mortal, SOON_S)

    assert await held_until(waiting) < SOON_S + LATE_S
    version = getattr(subject.versions, which)
    assert (waiting.result().status_code, waiting.result().headers["x-rlfleet-version"]) == (
        200,
        version,
    )
    assert (await frozen).status_code == 200

    await mortal.start_sidecar()
    report, took_s = await ended(mortal, Stage.OPEN)
    assert (report.proved, report.expires_s, report.paused_s) == (version, None, None)
    assert took_s < LATE_S
    assert mortal.engine.gate.is_open


async def test_an_engine_whose_core_exits_in_a_change_holds_no_request_at_its_gate(
    mortal: Mortal, subject: Subject
) -> None:
    # vLLM stops listening then, so no sidecar reaches the gate, and ends when all is answered.
    await subject.serve(subject.versions.first)
    await lead(subject, Stage.LOADED, ttl_s=LONG_S)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))
    await asyncio.sleep(0.05)
    assert not waiting.done()

    mortal.engine.behaviour = Behaviour(core_dies=True, health=503)
    await mortal.kill_sidecar()

    assert await held_until(waiting) < LATE_S
    assert waiting.result().status_code == 503
    assert not mortal.engine.gate.is_open


async def killed_when_loaded(mortal: Mortal, subject: Subject) -> None:
    await lead(subject, Stage.LOADED, ttl_s=LONG_S)
    await mortal.kill_sidecar()


@pytest.mark.parametrize("killed", [killed_in_reload, killed_when_loaded])
async def test_the_gate_turns_requests_away_when_what_the_engine_holds_is_not_proved(
    mortal: Mortal,
    subject: Subject,
    killed: Callable[[Mortal, Subject], Awaitable[None]],
) -> None:
    await subject.serve(subject.versions.first)
    mortal.engine.behaviour = Behaviour(token_s=0.02)
    frozen = asyncio.create_task(subject.complete(max_tokens=20))
    await asyncio.sleep(0.05)
    served = len(mortal.engine.served)
    await killed(mortal, subject)
    waiting = asyncio.create_task(subject.complete(max_tokens=2))
    shorten(mortal, SOON_S)

    assert await held_until(waiting) < SOON_S + LATE_S
    assert waiting.result().status_code == 503
    assert waiting.result().headers["retry-after"]
    assert (await frozen).json()["choices"][0]["finish_reason"] == "abort"
    assert not mortal.engine.gate.is_open
    assert len(mortal.engine.served) <= served + 1

    await mortal.start_sidecar()
    await ended(mortal, Stage.DOWN)
    await mortal.restart_engine()
    report, _ = await ended(mortal, Stage.CLOSED)
    assert report.proved is None


async def test_the_gate_rejects_a_request_on_trial_when_the_sidecar_stays_dead(
    mortal: Mortal, subject: Subject
) -> None:
    """The reply is there; without a sidecar no proof follows."""
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    mortal.engine.behaviour = Behaviour(token_s=60)
    update = subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second, ttl_s=LONG_S)
    going = asyncio.create_task(update)
    gate = mortal.engine.gate

    async def is_admitting() -> bool:
        return gate.is_admitting

    await seconds_until(is_admitting)
    # The probe has begun to wait for its first token; the request need not.
    mortal.engine.behaviour = Behaviour()
    waiting = asyncio.create_task(subject.complete(max_tokens=1))
    await asyncio.sleep(0.5)
    assert not waiting.done()

    await mortal.kill_sidecar()
    shorten(mortal, SOON_S)

    assert await held_until(waiting) < SOON_S + LATE_S
    assert waiting.result().status_code == 503
    assert not gate.is_open
    assert not gate.is_admitting
    await asyncio.gather(going, return_exceptions=True)


async def test_a_sidecar_that_restarts_in_time_continues_and_the_gate_does_nothing(
    mortal: Mortal, subject: Subject
) -> None:
    await lead(subject, Stage.PAUSED, ttl_s=LONG_S)
    await mortal.kill_sidecar()
    await mortal.start_sidecar()
    await settled(mortal, lambda report: report.stage is Stage.PAUSED)

    report = await subject.ok(
        paths.UPDATE_WEIGHTS_PATH, subject.versions.second, operation="the-change"
    )

    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.second)
    assert mortal.engine.gate.deadline.rest_s is None


async def is_kept(mortal: Mortal) -> bool:
    return (mortal.engine.gate.deadline.rest_s or 0) > LONG_S * 0.9


async def test_a_living_sidecar_keeps_the_gate_between_commands_and_within_one(
    mortal: Mortal, subject: Subject
) -> None:
    common: dict[str, Any] = {"operation": "the-change", "ttl_s": LONG_S}
    await lead(subject, Stage.PAUSED, ttl_s=LONG_S)
    shorten(mortal, LONG_S / 2)
    await seconds_until(lambda: is_kept(mortal))

    mortal.engine.behaviour = Behaviour(reload_s=0.6)
    update = subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second, **common)
    going = asyncio.create_task(update)
    await subject.until(lambda report: report.stage is Stage.LOADING)
    shorten(mortal, LONG_S / 2)
    await seconds_until(lambda: is_kept(mortal))

    assert (await subject.report()).stage is Stage.LOADING
    assert (await going).status_code == 200


async def test_a_sidecar_that_exits_in_each_command_does_not_restart_the_countdown(
    mortal: Mortal, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    mortal.engine.behaviour = Behaviour(pause_s=30)
    pause = subject.send(paths.PAUSE_PATH, subject.versions.second, ttl_s=LONG_S)
    going = asyncio.create_task(pause)
    await subject.until(lambda report: report.stage is Stage.PAUSED)
    await mortal.kill_sidecar()
    rests = []
    for _start in range(3):
        await mortal.start_sidecar()
        report = await settled(mortal, lambda report: report.stage is not Stage.DOWN)
        rests.append(report.expires_s or 0.0)
        await asyncio.sleep(0.2)
        await mortal.kill_sidecar()
    await asyncio.gather(going, return_exceptions=True)

    assert rests[0] - rests[2] > 0.3


POSTS = 13
"""Requests that change something, from the pause of an update to the opened gate."""


@pytest.mark.parametrize("posts", range(POSTS))
async def test_a_sidecar_that_dies_before_any_of_its_requests_leaves_nothing_unproved_in_traffic(
    mortal: Mortal, subject: Subject, posts: int
) -> None:
    first, second = subject.versions.first, subject.versions.second
    await subject.serve(first)
    known = {(await said(subject))[0]: first}
    await subject.ok(paths.PREPARE_PATH, second)
    mortal.cut_after(posts)
    await subject.send(paths.UPDATE_WEIGHTS_PATH, second, ttl_s=LONG_S)
    await mortal.kill_sidecar()
    waiting = asyncio.create_task(subject.complete(max_tokens=2))
    if mortal.engine.gate.deadline.rest_s is not None:
        shorten(mortal, 0.01)
    await held_until(waiting)
    alone = waiting.result()

    await mortal.start_sidecar()
    # Proved waits for a driver: the one of the next line, or the end of its time to live.
    ready = (Stage.OPEN, Stage.PROVED)
    await settled(mortal, lambda report: report.stage in ready or not mortal.has_engine)
    if not mortal.has_engine:
        await ended(mortal, Stage.DOWN)
        await mortal.restart_engine()
        await ended(mortal, Stage.CLOSED)
        assert alone.status_code == 503
    await subject.serve(second)
    known[(await said(subject))[0]] = second

    assert alone.status_code in {200, 503}
    if alone.status_code == 200:
        text = alone.json()["choices"][0]["text"]
        assert alone.headers["x-rlfleet-version"] == known[text]


async def test_a_sidecar_that_exits_before_it_recorded_the_open_gate_leaves_it_open(
    mortal: Mortal, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    mortal.cut_after(POSTS, drops_reply=True)
    await subject.send(paths.UPDATE_WEIGHTS_PATH, subject.versions.second, ttl_s=LONG_S)
    await mortal.kill_sidecar()
    assert mortal.engine.gate.is_open

    await mortal.start_sidecar()
    _, took_s = await ended(mortal, Stage.OPEN)

    assert took_s < LATE_S
    assert (await said(subject))[1] == subject.versions.second


async def said(subject: Subject) -> tuple[str, str]:
    reply = await subject.complete(max_tokens=2)
    return reply.json()["choices"][0]["text"], reply.headers["x-rlfleet-version"]
