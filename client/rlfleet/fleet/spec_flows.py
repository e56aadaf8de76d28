"""How a trainer sets spec.weightVersion, and what a fleet's object reports of it. Pure.

By the rules of `kubectl rlf wait` (rlfleet_view.verdict). As with the fleet API a lost reply is
no failure: the patch may be repeated, and the object reports what came of it.
"""

import json
import re
from collections.abc import Generator
from typing import NamedTuple
from urllib.parse import quote, urlencode

from rlfleet.fleet.errors import (
    ChangeConflictError,
    FleetError,
    FleetUnreachableError,
    NotProvedError,
    VersionSupersededError,
    WaitTimeoutError,
)
from rlfleet.fleet.flows import (
    MOST_REST_S,
    REST_S,
    Call,
    CallOutcome,
    Delay,
    Flow,
    Lost,
    Monotonic,
    OnProgress,
    RawReply,
)
from rlfleet.fleet.replies import ChangeResult, FleetState, FleetWorker, RolloutState
from rlfleet_view.fleet import ObservedFleet, WorkerRow
from rlfleet_view.verdict import Judged, SyncState, judged

_CALL_S = 20.0
_LOOK_S = 1.0
_SETTLING_S = 30.0
"""How long an API server that has just started may reject what it granted before."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SHOWN = 300
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 401, 403, 404
_CONFLICT, _TOO_MANY, _SERVER_ERROR = 409, 429, 500
_GONE = "NotFound"

Read = Generator[Call | Delay, CallOutcome, ObservedFleet]


class FleetName(NamedTuple):
    """Which fleet it is."""

    namespace: str
    name: str

    @property
    def collection(self) -> str:
        """Return the path of its namespace's fleets."""
        return f"/apis/rlfleet.dev/v1alpha1/namespaces/{self.namespace}/rlinferencefleets/"


def name_of(namespace: str, name: str) -> FleetName:
    """Return which fleet it is; raises ValueError for a name that none can have."""
    for one in (namespace, name):
        if not _NAME.fullmatch(one):
            raise ValueError(
                f"{one!r} is no name of a fleet or namespace: lower-case letters, digits and '-'"
            )
    return FleetName(namespace, name)


def set_version(
    fleet: FleetName, version: str, manager: str, timeout_s: float, clock: Monotonic
) -> Flow[FleetState]:
    """Write spec.weightVersion; raises FleetError."""
    return state_of((yield from _patched(fleet, version, manager, clock() + timeout_s, clock)))


def update(
    fleet: FleetName,
    version: str,
    manager: str,
    timeout_s: float,
    clock: Monotonic,
    progress: OnProgress,
) -> Flow[ChangeResult]:
    """Write spec.weightVersion, and wait until every worker has proved it; raises FleetError."""
    until = clock() + timeout_s
    seen = yield from _patched(fleet, version, manager, until, clock)
    seen = yield from _proved(fleet, seen, version, until, clock, progress, is_ours=True)
    return _result(seen, version, judged(seen, version))


def wait(fleet: FleetName, version: str, timeout_s: float, clock: Monotonic) -> Flow[FleetState]:
    """Wait until every worker has proved a version that others set; raises FleetError."""
    until = clock() + timeout_s
    seen = yield from _read(fleet, until, clock)
    return state_of((yield from _proved(fleet, seen, version, until, clock, lambda _: None)))


def state(fleet: FleetName, timeout_s: float, clock: Monotonic) -> Flow[FleetState]:
    """Return the fleet's state; raises FleetError."""
    return state_of((yield from _read(fleet, clock() + timeout_s, clock)))


def _proved(
    fleet: FleetName,
    seen: ObservedFleet,
    version: str,
    until: float,
    clock: Monotonic,
    progress: OnProgress,
    *,
    is_ours: bool = False,
) -> Read:
    said = ""
    while True:
        found = judged(seen, version)
        if is_ours and found.state is not SyncState.SUPERSEDED and _is_removed(seen):
            found = Judged(SyncState.SUPERSEDED, "Removed", "spec.weightVersion was removed")
        if found.state is SyncState.SYNCED:
            return seen
        if found.state is not SyncState.BEHIND:
            raise _over(seen, version, found)
        if found.message != said:
            said = found.message
            progress(_result(seen, version, found))
        if clock() >= until:
            raise WaitTimeoutError(
                f"{version} not proved in time: {found.reason}: {found.message}",
                workers=_workers(seen, version),
            )
        yield Delay(min(_LOOK_S, max(0.0, until - clock())))
        seen = yield from _read(fleet, until, clock, settling_s=_SETTLING_S)


def _is_removed(seen: ObservedFleet) -> bool:
    return not seen.spec.get("weightVersion")


def _over(seen: ObservedFleet, version: str, found: Judged) -> FleetError:
    """Return why waiting does not help."""
    workers = _workers(seen, version)
    if found.state is SyncState.DELETING:
        return FleetError(f"{seen.name} is {found.message}", code=found.reason, workers=workers)
    if found.state is SyncState.STALLED:
        done, wanted = sum(one.status == "ok" for one in workers), seen.replicas
        return NotProvedError(
            f"{done} of {wanted} workers proved {version}; {found.reason}: {found.message}",
            code="NotProved",
            workers=workers,
        )
    writer = _writer(seen)
    by = f", written by {writer}" if writer else ""
    return VersionSupersededError(
        f"superseded: {found.message}{by}; only one source may set it",
        code="Superseded",
        workers=workers,
    )


def _writer(seen: ObservedFleet) -> str:
    """Return the field manager that wrote spec.weightVersion last; empty if none is known."""
    entries = seen.raw["metadata"].get("managedFields") or []
    own = [
        one
        for one in entries
        if "f:weightVersion" in ((one.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    newest = max(own, key=lambda one: str(one.get("time", "")), default=None)
    return "" if newest is None else str(newest.get("manager", ""))


def _patched(fleet: FleetName, version: str, manager: str, until: float, clock: Monotonic) -> Read:
    query = urlencode({"fieldManager": manager, "fieldValidation": "Strict"}, quote_via=quote)
    return _repeated(
        Call("PATCH", f"{fleet.name}?{query}", {"spec": {"weightVersion": version}}, _CALL_S),
        fleet,
        until,
        clock,
    )


def _read(fleet: FleetName, until: float, clock: Monotonic, *, settling_s: float = 0.0) -> Read:
    return _repeated(Call("GET", fleet.name, None, _CALL_S), fleet, until, clock, settling_s)


def _repeated(
    call: Call, fleet: FleetName, until: float, clock: Monotonic, settling_s: float = 0.0
) -> Read:
    settled, rest_s = clock() + settling_s, REST_S
    while True:
        found = yield call._replace(limit_s=min(call.limit_s, max(1.0, until - clock())))
        if isinstance(found, RawReply) and found.status == _OK:
            return _parsed(found)
        problem = _problem(fleet, found)
        if isinstance(problem, FleetUnreachableError):
            settled = clock() + _SETTLING_S
        is_certain = problem.code == _GONE or clock() >= settled
        if is_certain and not _is_passing(problem):
            raise problem
        if clock() >= until:
            raise problem
        yield Delay(min(rest_s, max(0.0, until - clock())))
        rest_s = min(2 * rest_s, MOST_REST_S)


def _is_passing(problem: FleetError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(problem, FleetUnreachableError) or problem.status == _CONFLICT


def _problem(fleet: FleetName, found: CallOutcome) -> FleetError:
    """Return what a request without an object failed of."""
    if not isinstance(found, RawReply):
        why = found.why if isinstance(found, Lost) else "no reply"
        return _unreachable(why)
    code, message = _status(found)
    if found.status >= _SERVER_ERROR or found.status == _TOO_MANY:
        return _unreachable(f"HTTP {found.status} {message}", found.status)
    if found.status == _NOT_FOUND and code == _GONE:
        message = f"no fleet {fleet.name} in namespace {fleet.namespace}"
    action = _action(fleet, found.status, message)
    shown = f"{message}; {action}" if action else message
    kind = ChangeConflictError if found.status == _CONFLICT else FleetError
    return kind(shown, code=code, status=found.status)


def _unreachable(why: str, status: int | None = None) -> FleetError:
    return FleetUnreachableError(
        f"the API server does not answer: {why}; check its address and the network", status=status
    )


def _action(fleet: FleetName, status: int, message: str) -> str:
    """Return what to do about a rejected request; empty where its message says so."""
    if status == _FORBIDDEN and " cannot " in message:
        return (
            "bind the user to the chart's ClusterRole RELEASE-trainer in namespace"
            f" {fleet.namespace}"
        )
    return {
        _UNAUTHORIZED: "check the ServiceAccount's token, or log in again",
        _NOT_FOUND: "create it, or check both names and that rlfleet is installed",
    }.get(status, "")


def _status(found: RawReply) -> tuple[str, str]:
    """Return reason and message of a Status, or the text of another reply."""
    try:
        status = json.loads(found.body)
        return str(status.get("reason") or ""), str(status.get("message") or "")
    except (ValueError, AttributeError):
        return "", f"HTTP {found.status} {found.body[:_SHOWN].decode(errors='replace')!r}"


def _parsed(found: RawReply) -> ObservedFleet:
    try:
        raw = json.loads(found.body)
    except ValueError:
        raw = None
    if not isinstance(raw, dict) or raw.get("kind") != "RLInferenceFleet":
        shown = found.body[:_SHOWN].decode(errors="replace")
        raise FleetError(
            f"the reply is no fleet: {shown!r}; check the API server's address",
            status=found.status,
        )
    return ObservedFleet(raw)


def _result(seen: ObservedFleet, version: str, found: Judged) -> ChangeResult:
    is_done = found.state is SyncState.SYNCED
    return ChangeResult(
        status="ok" if is_done else "error",
        code=None if is_done else "NotProved",
        message=found.message,
        retryable=not is_done,
        version=version,
        rollout=_rollout(seen),
        workers=_workers(seen, version),
    )


def state_of(seen: ObservedFleet) -> FleetState:
    """Return a fleet as the fleet API does, as far as its object has it."""
    pause = seen.status.get("trainerPause") or {}
    is_ready = seen.status.get("readyReplicas", 0) == seen.replicas > 0
    declared = seen.spec.get("weightVersion")
    is_free = not declared and seen.spec_at("weights.follow") != "Latest"
    desired = declared or seen.target or None
    return FleetState(
        namespace=seen.namespace,
        fleet=seen.name,
        ready=is_ready,
        paused=bool(seen.workers) and all(one.phase == "Paused" for one in seen.workers),
        paused_by="trainer" if pause else None,
        paused_until=pause.get("until"),
        desired_version=desired,
        desired_by=None if desired is None else "trainer" if is_free else "spec",
        applied_version=_applied(seen, is_ready=is_ready),
        rollout=_rollout(seen),
        workers=_workers(seen),
    )


def _applied(seen: ObservedFleet, *, is_ready: bool) -> str | None:
    if seen.left_out:
        return seen.serving or None if is_ready else None
    proved = {one.version for one in seen.workers}
    is_whole = len(seen.workers) == seen.replicas and len(proved) == 1
    return proved.pop() or None if is_whole else None


def _rollout(seen: ObservedFleet) -> RolloutState | None:
    known = seen.rollout
    if known is None:
        return None
    return RolloutState(id=known.id, to=known.to, phase=known.phase, message=known.message)


def _workers(seen: ObservedFleet, version: str | None = None) -> tuple[FleetWorker, ...]:
    return tuple(_worker(row, version) for row in seen.workers)


def _worker(row: WorkerRow, version: str | None) -> FleetWorker:
    is_well = not row.message if version is None else row.version == version and row.is_ready
    return FleetWorker(
        name=row.name,
        status="ok" if is_well else "error",
        ready=row.is_ready,
        version=row.version or None,
        message=row.message or (None if is_well else row.phase),
    )
