"""A trainer's request is repeated while that may help, and its error says what to do."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from rlfleet.fleet import flows
from rlfleet.fleet.errors import (
    ChangeConflictError,
    FleetError,
    FleetUnreachableError,
    NotProvedError,
    VersionOwnedError,
    VersionSupersededError,
    WaitTimeoutError,
)
from rlfleet.fleet.flows import Lost, RawReply
from rlfleet.fleet.replies import ChangeResult
from tests.unit.rlfleet.fleet.replying import Server

STEP = "step-1"


def answer(status: int = 200, **fields: Any) -> RawReply:
    found = {"status": "ok" if status == 200 else "error", "message": "m"} | fields
    return RawReply(status, json.dumps(found).encode())


def state(version: str | None, *, ready: bool = True) -> RawReply:
    return answer(namespace="n", fleet="f", ready=ready, paused=False, applied_version=version)


def update(server: Server, timeout_s: float = 100.0, seen: Sequence[Any] = ()) -> ChangeResult:
    found: Any = seen
    note = found.append if isinstance(found, list) else lambda _: None
    return server.run(flows.update(STEP, timeout_s, server.clock, note))


CONTINUES = answer(502, code="NotProved", retryable=True, message="1 of 2 workers proved step-1")
ENDED = answer(502, code="NotProved", retryable=False, message="rollout 3 is Failed")


def test_an_update_that_continues_is_awaited_and_its_progress_is_reported() -> None:
    server = Server(CONTINUES, CONTINUES, answer(version=STEP))
    seen: list[ChangeResult] = []

    result = update(server, seen=seen)

    assert result.version == STEP
    assert [one.message for one in seen] == ["1 of 2 workers proved step-1"] * 2
    assert {call.route for call in server.calls} == {"update_weights"}
    assert {(call.body or {})["version"] for call in server.calls} == {STEP}


def test_a_lost_reply_and_a_fleet_without_workers_are_requested_again() -> None:
    no_workers = answer(503, code="NoWorkers", retryable=True)

    assert update(Server(Lost("ReadError"), no_workers, answer(version=STEP))).version == STEP


def test_a_proxy_s_error_page_is_a_lost_reply() -> None:
    page = RawReply(503, b"<html>no healthy upstream</html>")

    assert update(Server(page, answer(version=STEP))).version == STEP
    with pytest.raises(FleetUnreachableError, match="HTTP 503"):
        update(Server(page), timeout_s=5)


def test_each_request_waits_on_the_server_for_half_a_minute_at_most_and_not_past_the_end() -> None:
    server = Server(CONTINUES, call_s=30.0)

    with pytest.raises(WaitTimeoutError, match="1 of 2 workers proved step-1"):
        update(server, timeout_s=70.0)

    waits = [(call.body or {})["timeout_s"] for call in server.calls]
    assert waits[:2] == [30.0, 30.0]
    assert waits[2] < 10
    assert all(call.limit_s > (call.body or {})["timeout_s"] for call in server.calls)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ENDED, NotProvedError),
        (answer(409, code="VersionOwned"), VersionOwnedError),
        (answer(409, code="Superseded"), VersionSupersededError),
        (answer(409, code="DryRun"), ChangeConflictError),
        (answer(401, code="Unauthorized"), FleetError),
    ],
)
def test_what_a_repeat_does_not_help_is_raised_at_once(
    reply: RawReply, kind: type[FleetError]
) -> None:
    server = Server(reply)

    with pytest.raises(FleetError) as caught:
        update(server)

    assert type(caught.value) is kind
    assert caught.value.status == reply.status
    assert caught.value.code == json.loads(reply.body)["code"]
    assert len(server.calls) == 1


def test_workers_of_an_error_are_kept() -> None:
    worker = {"name": "qwen-1", "status": "error", "message": "CheckpointInvalid: no tensor"}

    with pytest.raises(NotProvedError) as caught:
        update(Server(answer(502, code="NotProved", workers=[worker])))

    assert [one.message for one in caught.value.workers] == [worker["message"]]


def test_an_operator_that_never_answers_is_named_as_such() -> None:
    with pytest.raises(FleetUnreachableError, match="ConnectError; check the URL"):
        update(Server(Lost("ConnectError")), timeout_s=10)


def test_a_page_of_a_proxy_is_no_reply_of_a_fleet() -> None:
    with pytest.raises(FleetError, match=r"invalid reply \(HTTP 200\): '<html>'; check that the"):
        update(Server(RawReply(200, b"<html>")))


def test_a_pause_is_one_request_for_all_of_its_time() -> None:
    server = Server(answer())
    fields = flows.pause_fields("wait", clear_cache=False, ttl_s=60)

    server.run(flows.changed("pause", fields, 200.0, server.clock))

    (call,) = server.calls
    assert call.body == {"mode": "wait", "clear_cache": False, "ttl_s": 60, "timeout_s": 200.0}


def test_a_wait_ends_when_every_worker_serves_the_version() -> None:
    server = Server(state(None), state(STEP, ready=False), Lost("ReadError"), state(STEP))

    assert server.run(flows.wait(STEP, 60, server.clock)).applied_version == STEP
    assert len(server.calls) == 4


def test_a_wait_that_ends_before_says_what_the_fleet_serves() -> None:
    server = Server(state("step-0"))

    with pytest.raises(WaitTimeoutError, match="serves step-0 \\(expected step-1\\) after 5 s"):
        server.run(flows.wait(STEP, 5, server.clock))
