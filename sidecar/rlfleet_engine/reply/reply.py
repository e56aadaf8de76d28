"""Adds versions to the reply of one gated request, and checks them against its demand.

A reply with a Content-Length is complete, so its first and last version are known. A stream has
sent its head by then; it reports the last version in an event if the client asked for that.
Nothing must be sent while it may come from weights on trial. A reply that may come from weights
that failed their proof must end with the abort marker, unless its request passed the gate during
that very trial: then nothing of it was sent, and the request passes again later.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from rlfleet_contract import paths
from rlfleet_engine.asgi import LENGTH, Header, Send, answer, compact, error_of, resized
from rlfleet_engine.gate.gate import EngineVersion, Gate, ProofState
from rlfleet_engine.gate.held_request import Message
from rlfleet_engine.reply.abort_marker import UnmarkableError, marked, marked_events
from rlfleet_engine.reply.context_length import worded
from rlfleet_engine.reply.version_demand import DemandError, DemandVerdict, VersionDemand
from rlfleet_engine.sse import DONE, before_done

_VERSION = paths.VERSION_HEADER.encode()
_END = paths.END_VERSION_HEADER.encode()
_RETRY_AFTER: Header = (b"retry-after", b"1")
_MAX_ERROR_BYTES = 64 * 1024
_BAD_REQUEST = 400
_SERVER_ERROR = 500


class _Way(Enum):
    ON = "on"
    STREAMED = "streamed"
    """A stream; weights on trial may compute a later part."""
    WITHHELD = "withheld"
    """Dropped, because another reply was sent, or the request waits at the gate again."""
    GATHERED = "gathered"
    """Buffered until it is complete."""


class _Head(NamedTuple):
    """Status and length of a reply."""

    status: int
    length: bytes | None
    """None for a stream."""

    @property
    def is_good(self) -> bool:
        return self.status < _BAD_REQUEST

    @property
    def is_whole_answer(self) -> bool:
        """Whether the engine has completed a good reply of which nothing is sent yet."""
        return self.is_good and self.length is not None

    @property
    def is_short_refusal(self) -> bool:
        """Whether it may be vLLM's 400 for a prompt that is too long."""
        if self.status != _BAD_REQUEST:
            return False
        return int(self.length or _MAX_ERROR_BYTES) < _MAX_ERROR_BYTES


class Reply:
    """Replaces the server's ``send`` for one request."""

    __slots__ = (
        "_body",
        "_computes",
        "_demand",
        "_gate",
        "_has_come_on_trial",
        "_head",
        "_holding",
        "_reword",
        "_send",
        "_way",
        "has_begun",
        "is_void",
    )

    def __init__(
        self,
        send: Send,
        gate: Gate,
        holding: EngineVersion,
        demand: VersionDemand | None,
        *,
        computes: bool = True,
        on_trial: bool = False,
    ) -> None:
        self._send = send
        self._has_come_on_trial = on_trial
        self.is_void = False
        """Whether nothing was sent, because the proof failed after the gate had passed the
        request during its trial: the request is as new."""
        self.has_begun = False
        """Whether anything was sent."""
        self._computes = computes
        self._gate = gate
        self._holding = holding
        self._demand = demand
        self._way = _Way.ON
        self._head: Message = {}
        self._body = b""
        self._reword: Callable[[bytes], bytes] = worded

    async def __call__(self, message: Message) -> None:
        """Send a message of vLLM, or a replacement."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._way is _Way.ON:
            await self._send(message)
        elif self._way is _Way.STREAMED:
            await self._stream(message)
        elif self._way is _Way.GATHERED:
            await self._gather(message)

    async def _begin(self, message: Message) -> None:
        headers: list[Header] = [*message["headers"]]
        head = _Head(message["status"], dict(headers).get(LENGTH))
        may_wait = self._may_come_of_trial(head)
        standing = await self._gate.settled(self._holding.change) if may_wait else ProofState.PROVED
        self.is_void = self._has_come_on_trial and standing is ProofState.FAILED
        if self.is_void:
            self._way = _Way.WITHHELD
        else:
            await self._send_head(message, headers, head, standing, may_wait=may_wait)

    def _may_come_of_trial(self, head: _Head) -> bool:
        """Return whether a reply waits for a proof.

        An error is not computed by the model. But vLLM answers 400 if a log probability is not
        finite, and 500 to what is aborted: of a request that came on trial each reply waits.
        """
        return self._computes and (head.is_good or self._has_come_on_trial)

    async def _send_head(
        self,
        message: Message,
        headers: list[Header],
        head: _Head,
        standing: ProofState,
        *,
        may_wait: bool,
    ) -> None:
        self.has_begun = True
        if head.status == _SERVER_ERROR and self._gate.is_draining:
            self._way = _Way.WITHHELD
            await ending(self._send)
            return
        now = self._gate.holding if self._computes else self._gate.known
        if head.is_whole_answer and (demand := self._unmet(now)) is not None:
            self._way = _Way.WITHHELD
            await unmet(self._send, demand, now)
            return
        headers += _header(_VERSION, self._holding)
        if head.length is not None:
            headers += _header(_END, now)
        message = {**message, "headers": headers}
        if head.is_whole_answer and standing is ProofState.FAILED:
            self._way, self._head, self._reword = _Way.GATHERED, message, marked
        elif head.is_short_refusal:
            self._way, self._head = _Way.GATHERED, message
        else:
            self._way = _Way.STREAMED if may_wait and head.length is None else _Way.ON
            await self._send(message)

    async def _stream(self, message: Message) -> None:
        if await self._gate.settled(self._holding.change) is ProofState.FAILED:
            # Without a field for the marker this raises, which breaks the connection.
            message = {**message, "body": marked_events(message.get("body", b""))}
        demand, body = self._demand, message.get("body", b"")
        if demand is not None and demand.wants_end and DONE in body:
            event = compact(_event(self._holding, self._gate.holding))
            message = {**message, "body": before_done(body, event)}
        await self._send(message)

    async def _gather(self, message: Message) -> None:
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        try:
            body = self._reword(self._body)
        except UnmarkableError:
            await failed(self._send)
            return
        headers = resized(self._head["headers"], len(body))
        await self._send({**self._head, "headers": headers})
        await self._send({**message, "body": body})

    def _unmet(self, now: EngineVersion) -> VersionDemand | None:
        """Return the demand if the engine's version at the end does not meet it.

        An exact version must not have changed at all, not even to another version and back.
        """
        demand = self._demand
        if demand is None:
            return None
        is_same = demand.exact is None or now == self._holding
        is_met = is_same and demand.verdict(now.version.decode()) is DemandVerdict.MET
        return None if is_met else demand


def with_version(send: Send, gate: Gate) -> Send:
    """Return ``send``, wrapped to add the version header if the engine's version is proved."""

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_header(_VERSION, gate.known)]}
        await send(message)

    return adding


async def malformed(send: Send, error: DemandError) -> None:
    """Answer 400: a header names no valid version."""
    content = error_of(_BAD_REQUEST, "BadRequestError", str(error), error.header)
    await answer(send, _BAD_REQUEST, content)


async def unmet(send: Send, demand: VersionDemand, now: EngineVersion) -> None:
    """Answer 409: the engine has another version; or 400: the versions have no order."""
    version = now.version.decode()
    header = paths.EXACT_VERSION_HEADER if demand.exact else paths.MIN_VERSION_HEADER
    wanted = {"exact": demand.exact, "minimum": demand.minimum}
    fields = {"version": version or None} | {key: one for key, one in wanted.items() if one}
    asked = " and ".join(f"{key} {one}" for key, one in wanted.items() if one)
    if demand.verdict(version) is DemandVerdict.NO_ORDER:
        message = (
            f"version {version} and minimum {demand.minimum} have no order (expected names that"
            f" differ in a number at the end); use {paths.EXACT_VERSION_HEADER}"
        )
        content = error_of(_BAD_REQUEST, "BadRequestError", message, header, **fields)
        await answer(send, _BAD_REQUEST, content, _header(_VERSION, now))
        return
    message = (
        f"this worker serves {version or 'no proved version'} (requested: {asked});"
        " retry, or send the request to another worker"
    )
    content = error_of(409, "ConflictError", message, header, **fields)
    await answer(send, 409, content, [*_header(_VERSION, now), _RETRY_AFTER])


async def failed(send: Send) -> None:
    """Answer 503: the weights that computed the reply failed their proof."""
    message = "reply dropped: its weights failed their proof; send the request again"
    await _unavailable(send, message)


async def ending(send: Send) -> None:
    """Answer 503: the engine's container ends, and vLLM may have ended its core already."""
    await _unavailable(send, "worker is ending; send the request to another worker, or retry")


async def turned_away(send: Send) -> None:
    """Answer 503: the engine's weights are not proved, so waiting is pointless."""
    message = "worker out of service: its weights are not proved; use another worker, or retry"
    await _unavailable(send, message)


async def _unavailable(send: Send, message: str) -> None:
    await answer(send, 503, error_of(503, "ServiceUnavailableError", message), [_RETRY_AFTER])


def _event(began: EngineVersion, now: EngineVersion) -> Mapping[str, object]:
    """Return the event with a stream's versions, which complete replies have in headers.

    It has the form of OpenAI's last event with usage, an event without choices.
    """
    return {
        "object": "rlfleet.version",
        "choices": [],
        "version": began.version.decode() or None,
        "version_end": now.version.decode() or None,
        "changes": now.change - began.change,
    }


def _header(name: bytes, holding: EngineVersion) -> list[Header]:
    return [(name, holding.version)] if holding.version else []
