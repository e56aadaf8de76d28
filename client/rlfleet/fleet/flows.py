"""The requests of each call, and what follows from a reply. Pure.

A flow yields what to do next and gets back what came of it, so that the client and its
asynchronous form decide alike. It must stay true that a lost reply is no failure: each request
may be repeated, and joins what the first one began.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from rlfleet.fleet.errors import FleetError, FleetUnreachableError, WaitTimeoutError, error_of
from rlfleet.fleet.replies import ChangeResult, FleetState

_SLICE_S = 30.0
"""How long one request waits on the server: proxies end connections that are silent for long."""
_GRACE_S = 15.0
"""How much later than the server's own limit a reply may come."""
_LEAST_S = 0.1
REST_S, MOST_REST_S = 0.5, 5.0
"""Between two requests after a failed one: the first, and the most."""
_SHOWN = 300
_OK, _SERVER_ERROR = 200, 500


class Call(NamedTuple):
    """A request to send."""

    method: str
    route: str
    """Below /v1/rl/, or below a namespace's fleets at the API server."""
    body: dict[str, Any] | None
    """Of a PATCH: a merge patch."""
    limit_s: float
    """Seconds until it counts as lost."""


class Delay(NamedTuple):
    """Seconds to wait."""

    seconds: float


class RawReply(NamedTuple):
    """A reply."""

    status: int
    body: bytes


class Lost(NamedTuple):
    """No reply."""

    why: str


CallOutcome = RawReply | Lost | None
"""None: of a Delay."""
Found = TypeVar("Found", bound=BaseModel)
Flow = Generator[Call | Delay, CallOutcome, Found]
Monotonic = Callable[[], float]
OnProgress = Callable[[ChangeResult], object]


def update(
    version: str, timeout_s: float, clock: Monotonic, progress: OnProgress
) -> Flow[ChangeResult]:
    """Have every worker prove a version; raises FleetError."""
    return _changed("update_weights", {"version": version}, timeout_s, _SLICE_S, clock, progress)


def changed(
    route: str, fields: dict[str, Any], timeout_s: float, clock: Monotonic
) -> Flow[ChangeResult]:
    """Pause, flush or resume; raises FleetError."""
    # Not in slices: a pause that is not complete at its timeout is undone.
    return _changed(route, fields, timeout_s, timeout_s, clock, lambda _: None)


def pause_fields(mode: str, *, clear_cache: bool, ttl_s: float | None) -> dict[str, Any]:
    """Return the body of a pause."""
    fields: dict[str, Any] = {"mode": mode, "clear_cache": clear_cache}
    return fields if ttl_s is None else fields | {"ttl_s": ttl_s}


def _changed(
    route: str,
    fields: dict[str, Any],
    timeout_s: float,
    slice_s: float,
    clock: Monotonic,
    progress: OnProgress,
) -> Flow[ChangeResult]:
    def call(left_s: float) -> Call:
        wait_s = min(slice_s, max(_LEAST_S, left_s))
        return Call("POST", route, {**fields, "timeout_s": wait_s}, wait_s + _GRACE_S)

    return _repeated(call, ChangeResult, timeout_s, clock, progress)


def state(timeout_s: float, clock: Monotonic) -> Flow[FleetState]:
    """Return the fleet's state; raises FleetError."""

    def call(left_s: float) -> Call:
        return Call("GET", "state", None, max(_LEAST_S, left_s))

    return _repeated(call, FleetState, timeout_s, clock, lambda _: None)


def _repeated(
    call: Callable[[float], Call],
    model: type[Found],
    timeout_s: float,
    clock: Monotonic,
    progress: OnProgress,
) -> Flow[Found]:
    until, rest_s = clock() + timeout_s, REST_S
    while True:
        found = yield call(until - clock())
        if isinstance(found, RawReply) and found.status == _OK:
            return _parsed(model, found)
        result = _rejected(found)
        problem = _lost(found) if result is None else _problem(result, found)
        if result is not None:
            if not result.retryable:
                raise problem
            progress(result)
        if clock() >= until:
            raise _late(problem)
        yield Delay(min(rest_s, max(0.0, until - clock())))
        rest_s = min(2 * rest_s, MOST_REST_S)


def _rejected(found: CallOutcome) -> ChangeResult | None:
    """Return the operator's reply; None for none, as a proxy's while the operator restarts."""
    if not isinstance(found, RawReply):
        return None
    try:
        return _parsed(ChangeResult, found)
    except FleetError:
        if found.status < _SERVER_ERROR:
            raise
        return None


def wait(version: str, timeout_s: float, clock: Monotonic) -> Flow[FleetState]:
    """Wait until every worker has proved a version that others set; raises WaitTimeoutError."""
    until = clock() + timeout_s
    while True:
        found = yield from state(max(1.0, until - clock()), clock)
        if found.applied_version == version and found.ready:
            return found
        if clock() >= until:
            serving = found.applied_version or "several versions"
            raise WaitTimeoutError(
                f"the fleet serves {serving} (expected {version}) after {timeout_s:g} s; see"
                " kubectl describe rlinferencefleet",
                workers=found.workers,
            )
        yield Delay(REST_S)


def _lost(found: CallOutcome) -> FleetError:
    why = f"HTTP {found.status}" if isinstance(found, RawReply) else "no reply"
    why = found.why if isinstance(found, Lost) else why
    return FleetUnreachableError(f"the operator does not answer: {why}; check the URL and its pods")


def _problem(result: ChangeResult, found: CallOutcome) -> FleetError:
    status = found.status if isinstance(found, RawReply) else 0
    return error_of(result.message, code=result.code or "", status=status, workers=result.workers)


def _late(problem: FleetError) -> FleetError:
    """Return the error of a request whose time is over, although it might still succeed."""
    if isinstance(problem, FleetUnreachableError):
        return problem
    return WaitTimeoutError(str(problem), status=problem.status, workers=problem.workers)


def _parsed(model: type[Found], answer: RawReply) -> Found:
    try:
        return model.model_validate_json(answer.body)
    except ValidationError as error:
        shown = answer.body[:_SHOWN].decode(errors="replace")
        raise FleetError(
            f"invalid reply (HTTP {answer.status}): {shown!r}; check that the URL is a fleet's,"
            " http://OPERATOR:8082/fleets/NAMESPACE/NAME",
            status=answer.status,
        ) from error
