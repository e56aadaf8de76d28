"""The gate ends a change whose sidecar is silent: once, and over nothing that is not proved."""

import asyncio
import mmap
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_engine.asgi import Scope, Send, answer
from rlfleet_engine.gate.deadline import BYTES, Deadline, OnExpiry
from rlfleet_engine.gate.gate import Gate
from rlfleet_engine.gate.held_request import Receive
from rlfleet_engine.middleware import Extension
from tests.patience import seconds_until

SOON = 0.02


class Clock:
    """Stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_deadline_is_taken_once_after_it_has_passed() -> None:
    clock, shared = Clock(), mmap.mmap(-1, BYTES)
    one, other = Deadline(shared, 0, clock), Deadline(shared, 0, clock)
    assert (one.rest_s, one.take()) == (None, OnExpiry.NOTHING)

    one.set(10, OnExpiry.OPEN)
    clock.now += 9
    assert (other.rest_s, other.take()) == (1, OnExpiry.NOTHING)
    clock.now += 2

    assert (other.rest_s, other.is_expired) == (0, False)
    assert (other.take(), one.take()) == (OnExpiry.OPEN, OnExpiry.NOTHING)
    assert (one.rest_s, one.is_expired) == (None, True)


def test_a_deadline_that_is_renewed_is_the_same_one_and_one_that_is_over_is_not_renewed() -> None:
    clock = Clock()
    deadline = Deadline(mmap.mmap(-1, BYTES), 0, clock)
    deadline.set(10, OnExpiry.OPEN)
    turn = deadline.turn

    deadline.renew(20)
    assert (deadline.rest_s, deadline.turn) == (20, turn)
    deadline.renew(None, OnExpiry.REFUSE)
    clock.now += 20
    assert deadline.take() is OnExpiry.REFUSE
    deadline.renew(20, OnExpiry.OPEN)

    assert (deadline.rest_s, deadline.is_expired) == (None, True)
    deadline.end()
    assert not deadline.is_expired


class Engine:
    """vLLM as far as a gate that acts alone asks it."""

    def __init__(self, file: Path) -> None:
        self.gate = Gate(file, "boot-1")
        self.extension = Extension(self.answer, self.gate, lambda: None)
        self.asked: list[str] = []
        self.status = self.health = 200
        self.may_resume = asyncio.Event()
        self.may_resume.set()

    async def answer(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/health":
            await answer(send, self.health, b"{}")
            return
        self.asked.append(f"{scope['path']}?{scope['query_string'].decode()}".rstrip("?"))
        if scope["path"] == "/resume":
            await self.may_resume.wait()
        if self.status == 0:
            raise ConnectionError
        await answer(send, self.status, b"{}")

    async def command(self, action: str, **fields: Any) -> dict[str, Any]:
        transport = httpx.ASGITransport(self.extension, client=("127.0.0.1", 4000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            body = {"action": action, "boot": "boot-1"} | fields
            reply = await client.post(paths.GATE_PATH, json=body)
        assert reply.status_code == 200, reply.text
        told: dict[str, Any] = reply.json()
        return told

    async def until_expired(self) -> None:
        async def is_expired() -> bool:
            return self.gate.deadline.is_expired and bool(self.asked)

        await seconds_until(is_expired)
        await asyncio.sleep(SOON)


@pytest.fixture
async def engine(tmp_path: Path) -> Engine:
    made = Engine(tmp_path / "gate")
    await made.command("open", version="step-1")
    return made


async def test_the_engine_is_resumed_and_the_gate_opens_over_what_was_proved(
    engine: Engine,
) -> None:
    await engine.command("close", ttl_s=SOON, fallback="open")
    await engine.until_expired()

    assert engine.asked == ["/resume"]
    assert (engine.gate.is_open, engine.gate.holding.version) == (True, b"step-1")
    assert (await engine.command("keep", ttl_s=60))["is_expired"] is True
    assert engine.gate.deadline.rest_s is None
    assert (await engine.command("close"))["is_expired"] is False


async def test_requests_are_turned_away_and_what_is_frozen_ends_where_nothing_is_proved(
    engine: Engine,
) -> None:
    await engine.command("close", ttl_s=60, fallback="open")
    await engine.command("keep", ttl_s=SOON, fallback="refuse")
    await engine.until_expired()

    assert engine.asked == ["/pause?mode=abort&clear_cache=true"]
    assert engine.gate.is_refusing


async def test_a_version_on_trial_fails_it_and_is_never_opened(engine: Engine) -> None:
    await engine.command("close", ttl_s=60, fallback="open")
    await engine.command("try", version="step-2", ttl_s=SOON)
    await engine.until_expired()

    assert engine.gate.is_refusing
    assert not engine.gate.is_proved


async def test_a_proof_that_comes_after_the_deadline_proves_nothing(engine: Engine) -> None:
    await engine.command("try", version="step-2", ttl_s=SOON)
    await engine.until_expired()

    late = await engine.command("pass")

    assert late["is_expired"] is True
    assert not engine.gate.is_proved
    assert not engine.gate.is_open


async def test_a_fallback_that_is_open_by_mistake_opens_no_version_on_trial(
    engine: Engine,
) -> None:
    await engine.command("try", version="step-2", ttl_s=60)
    await engine.command("keep", ttl_s=SOON, fallback="open")
    await engine.until_expired()

    assert engine.gate.is_refusing


@pytest.mark.parametrize("status", [500, 0])
async def test_an_engine_that_cannot_be_resumed_turns_requests_away(
    engine: Engine, status: int
) -> None:
    engine.status = status
    await engine.command("close", ttl_s=SOON, fallback="open")
    await engine.until_expired()

    assert engine.gate.is_refusing


@pytest.mark.parametrize(("action", "fields"), [("close", {}), ("try", {"version": "step-2"})])
async def test_a_sidecar_that_comes_back_in_between_keeps_the_gate_closed(
    engine: Engine, action: str, fields: dict[str, str]
) -> None:
    engine.may_resume.clear()
    await engine.command("close", ttl_s=SOON, fallback="open")
    await engine.until_expired()
    await engine.command(action, **fields)
    engine.may_resume.set()
    await asyncio.sleep(SOON)

    assert not engine.gate.is_open
    assert not engine.gate.is_refusing


async def test_a_deadline_that_is_kept_does_nothing_and_an_opened_gate_has_none(
    engine: Engine,
) -> None:
    await engine.command("close", ttl_s=0.2, fallback="open")
    for _time in range(8):
        await engine.command("keep", ttl_s=0.2)
        await asyncio.sleep(0.05)
    assert (engine.asked, engine.gate.is_open) == ([], False)

    await engine.command("open", version="step-1")
    assert engine.gate.deadline.rest_s is None


async def test_only_one_process_acts(tmp_path: Path, engine: Engine) -> None:
    other = Engine(tmp_path / "gate")
    await engine.command("close", ttl_s=0.1, fallback="open")
    await other.command("keep", ttl_s=0.1)
    await asyncio.sleep(0.3)

    assert len([*engine.asked, *other.asked]) == 1
    assert engine.gate.is_open


async def test_a_core_that_dies_ends_the_change_and_nothing_is_asked_of_it(
    engine: Engine,
) -> None:
    await engine.command("close", ttl_s=60, fallback="open")
    engine.health = 503

    async def is_refusing() -> bool:
        return engine.gate.is_refusing

    await seconds_until(is_refusing)

    assert (engine.asked, engine.gate.is_open) == ([], False)
    assert engine.gate.deadline.rest_s is None
