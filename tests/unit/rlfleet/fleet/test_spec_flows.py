"""What a trainer does about each reply of the API server, and what it reads in a fleet."""

import json
from typing import Any

import pytest

from rlfleet.fleet import spec_flows
from rlfleet.fleet.errors import (
    ChangeConflictError,
    FleetError,
    FleetUnreachableError,
    NotProvedError,
    VersionSupersededError,
    WaitTimeoutError,
)
from rlfleet.fleet.flows import CallOutcome, Lost, RawReply
from rlfleet.fleet.replies import ChangeResult, FleetState
from tests.unit.rlfleet.fleet.replying import Server

FLEET = spec_flows.name_of("rl", "qwen")
STEP = "step-1"


def seen(
    kind: str = "WeightsSynced",
    status: str = "False",
    *,
    observed: int = 2,
    version: str | None = STEP,
    workers: tuple[dict[str, Any], ...] = (),
    **more: Any,
) -> RawReply:
    """Return a fleet of one worker; its spec is of generation 2."""
    condition = {"type": kind, "status": status, "reason": "R", "message": f"m of {kind}"}
    body = {
        "kind": "RLInferenceFleet",
        "metadata": {"namespace": "rl", "name": "qwen", "generation": 2},
        "spec": {"replicas": 1} | ({"weightVersion": version} if version else {}),
        "status": {
            "observedGeneration": observed,
            "target": version or "",
            "conditions": [condition | {"observedGeneration": observed}],
            "workers": list(workers),
        }
        | more,
    }
    return RawReply(200, json.dumps(body).encode())


def deleted(reply: RawReply) -> RawReply:
    """Return the same fleet while a finalizer keeps it."""
    body = json.loads(reply.body)
    body["metadata"] |= {"deletionTimestamp": "2026-11-25T02:00:00Z", "finalizers": ["a.b/keep"]}
    return RawReply(200, json.dumps(body).encode())


def rejected(status: int, reason: str, message: str = "m") -> RawReply:
    body = {"kind": "Status", "reason": reason, "message": message}
    return RawReply(status, json.dumps(body).encode())


def update(server: Server, timeout_s: float = 100.0) -> ChangeResult:
    flow = spec_flows.update(FLEET, STEP, "me", timeout_s, server.clock, lambda _: None)
    return server.run(flow)


BEHIND, DONE = seen(), seen(status="True")
NO_ROUTE = RawReply(404, b"404 page not found\n")
DENIED = rejected(403, "Forbidden", 'User "t" cannot get resource "rlinferencefleets"')


def test_a_fleet_that_a_finalizer_keeps_ends_the_wait() -> None:
    with pytest.raises(FleetError, match=r"qwen is deleted at .*finalizers: a\.b/keep") as found:
        update(Server(BEHIND, deleted(DONE)))

    assert (type(found.value), found.value.code) == (FleetError, "Deleted")


def test_the_version_alone_is_patched_as_the_given_manager_and_then_only_read() -> None:
    server = Server(seen(observed=1), BEHIND, DONE)

    result = update(server)

    assert (result.status, result.message) == ("ok", "m of WeightsSynced")
    assert [one.method for one in server.calls] == ["PATCH", "GET", "GET"]
    assert server.calls[0].route == "qwen?fieldManager=me&fieldValidation=Strict"
    assert server.calls[0].body == {"spec": {"weightVersion": STEP}}


@pytest.mark.parametrize("kind", ["WeightsSynced", "Stalled"])
def test_conditions_of_the_spec_before_end_no_wait(kind: str) -> None:
    assert update(Server(seen(kind, "True", observed=1), DONE)).status == "ok"


@pytest.mark.parametrize(
    "outcome",
    [
        Lost("ReadError"),
        RawReply(503, b"<html>no healthy upstream</html>"),
        rejected(500, "InternalError", "failed calling webhook"),
        rejected(429, "TooManyRequests"),
        rejected(409, "Conflict"),
    ],
)
def test_what_passes_is_requested_again_until_the_time_is_over(outcome: CallOutcome) -> None:
    assert update(Server(outcome, BEHIND, outcome, DONE)).status == "ok"
    with pytest.raises((FleetUnreachableError, ChangeConflictError)):
        update(Server(outcome), timeout_s=5)


@pytest.mark.parametrize("outcome", [NO_ROUTE, DENIED, rejected(401, "Unauthorized")])
def test_an_api_server_that_has_just_started_ends_no_wait(outcome: RawReply) -> None:
    """It may not have read roles and definitions yet. At first the same is an error."""
    assert update(Server(BEHIND, outcome, outcome, DONE)).status == "ok"
    with pytest.raises(FleetError) as settled:
        update(Server(BEHIND, outcome), timeout_s=500)
    first = Server(outcome)
    with pytest.raises(FleetError):
        update(first)

    assert settled.value.status == outcome.status
    assert len(first.calls) == 1


def test_an_outage_of_any_length_may_end_with_what_has_just_started() -> None:
    lost = [Lost("ConnectError")] * 20

    assert update(Server(*lost, DENIED, DENIED, BEHIND, *lost, DENIED, DONE), 900).status == "ok"


def test_a_fleet_that_is_gone_ends_the_wait_at_once() -> None:
    server = Server(BEHIND, rejected(404, "NotFound"))

    with pytest.raises(FleetError, match="no fleet qwen in namespace rl; create it"):
        update(server)

    assert len(server.calls) == 2


def test_admission_s_own_words_are_enough() -> None:
    words = "a trainer may change spec.weightVersion only"
    with pytest.raises(FleetError) as denied:
        update(Server(rejected(403, "Forbidden", words)))

    assert str(denied.value) == f"Forbidden: {words}"


def test_a_page_of_something_else_is_no_fleet() -> None:
    with pytest.raises(FleetError, match="the reply is no fleet: '<html>'"):
        update(Server(RawReply(200, b"<html>")))


def test_a_stalled_version_is_not_proved_and_has_each_worker_s_reason() -> None:
    bad = {"name": "qwen-0", "phase": "Quarantined", "message": "ReloadFailed: no"}
    quiet = {"name": "qwen-1", "phase": "Preparing", "version": "step-0", "ready": True}

    with pytest.raises(NotProvedError, match="0 of 1 workers proved step-1; R: m of St") as failed:
        update(Server(seen("Stalled", "True", workers=(bad, quiet))))

    assert [one.message for one in failed.value.workers] == ["ReloadFailed: no", "Preparing"]
    assert failed.value.workers[1].version == "step-0"


@pytest.mark.parametrize(
    ("other", "words"), [("step-2", "is step-2, not step-1"), (None, "was removed")]
)
def test_a_version_that_is_no_longer_in_the_spec_is_superseded(
    other: str | None, words: str
) -> None:
    with pytest.raises(VersionSupersededError, match=words):
        update(Server(BEHIND, seen(version=other)))


def test_a_timeout_has_the_fleet_s_words_and_is_never_overslept() -> None:
    server = Server(BEHIND)

    with pytest.raises(WaitTimeoutError, match="step-1 not proved in time: R: m of Weights"):
        update(server, timeout_s=10)

    assert server.now <= 12


def state(reply: RawReply) -> FleetState:
    server = Server(reply)
    return server.run(spec_flows.state(FLEET, 5, server.clock))


WORKER = {"name": "qwen-0", "phase": "Serving", "version": STEP, "ready": True}


def test_a_state_is_the_fleet_api_s_as_far_as_the_object_has_it() -> None:
    serving = state(seen(workers=(WORKER,), readyReplicas=1, serving=STEP))
    until = {"until": "2026-01-01T00:00:00Z"}
    paused = WORKER | {"phase": "Paused", "ready": False}
    held = state(seen(workers=(paused,), version=None, trainerPause=until, target=STEP))

    assert (serving.ready, serving.applied_version, serving.desired_by) == (True, STEP, "spec")
    assert (held.ready, held.paused, held.paused_by) == (False, True, "trainer")
    assert (held.applied_version, held.desired_by, held.paused_until) == (
        STEP,
        "trainer",
        until["until"],
    )
    assert state(seen()).applied_version is None


@pytest.mark.parametrize(("is_ready", "applied"), [(1, STEP), (0, None)])
def test_where_status_leaves_workers_out_only_a_ready_fleet_has_one_version(
    is_ready: int, applied: str | None
) -> None:
    found = state(seen(workersTruncated=9, readyReplicas=is_ready, serving=STEP))

    assert found.applied_version == applied


@pytest.mark.parametrize("name", ["", "Qwen", "a/b", "..", "a?b"])
def test_a_name_that_no_fleet_can_have_makes_no_request(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a fleet or namespace"):
        spec_flows.name_of("rl", name)
