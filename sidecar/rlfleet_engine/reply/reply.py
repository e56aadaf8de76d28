"""Stands between vLLM and the client of one gated request, on the way back.

It tells the versions and sees that a reply is what was asked for. A reply goes out whole
when its length is known: then the engine has ended, and what it had loaded at the end is known
too. One that is streamed has sent its head by then, and tells its end in an event if it
was asked to. It must stay true that nothing goes out while it may come from weights on
trial, and that what may come from weights that failed their proof ends with the marker of
an abort.
"""

from collections.abc import Callable, Mapping, MutableMapping
from enum import Enum
from typing import Any, NamedTuple

from rlfleet_contract import paths
from rlfleet_engine.asgi import LENGTH, Header, Send, answer, compact, error_of, resized
from rlfleet_engine.gate.gate import Gate, Holding, Standing
from rlfleet_engine.reply.abort_marker import UnmarkableError, marked, marked_events
from rlfleet_engine.reply.context_length import worded
from rlfleet_engine.reply.version_demand import Demand, DemandError, DemandVerdict
from rlfleet_engine.sse import DONE, before_done

AsgiMessage = MutableMapping[str, Any]

_VERSION = paths.VERSION_HEADER.encode()
_END = paths.END_VERSION_HEADER.encode()
_RETRY_AFTER: Header = (b"retry-after", b"1")
_MAX_ERROR_BYTES = 64 * 1024
_BAD_REQUEST = 400


class _Way(Enum):
    ON = "on"
    STREAMED = "streamed"
    """It may come from weights that are tried after it began."""
    WITHHELD = "withheld"
    """Something else was sent in its place."""
    GATHERED = "gathered"
    """Kept until it is whole."""


class _Head(NamedTuple):
    """What the head of a reply says of all of it."""

    status: int
    length: bytes | None
    """None if the reply is streamed."""

    @property
    def is_good(self) -> bool:
        return self.status < _BAD_REQUEST

    @property
    def is_whole_answer(self) -> bool:
        """Whether the engine has ended, and nothing of its answer has gone out."""
        return self.is_good and self.length is not None

    @property
    def is_short_refusal(self) -> bool:
        """Whether it may be vLLM's word on a prompt that is too long."""
        if self.status != _BAD_REQUEST:
            return False
        return int(self.length or _MAX_ERROR_BYTES) < _MAX_ERROR_BYTES


class Reply:
    """Stands in for the server's ``send``."""

    __slots__ = (
        "_body",
        "_computes",
        "_demand",
        "_gate",
        "_head",
        "_holding",
        "_reword",
        "_send",
        "_way",
    )

    def __init__(
        self,
        send: Send,
        gate: Gate,
        holding: Holding,
        demand: Demand | None,
        *,
        computes: bool = True,
    ) -> None:
        self._send = send
        self._computes = computes
        self._gate = gate
        self._holding = holding
        self._demand = demand
        self._way = _Way.ON
        self._head: AsgiMessage = {}
        self._body = b""
        self._reword: Callable[[bytes], bytes] = worded

    async def __call__(self, message: AsgiMessage) -> None:
        """Send what vLLM sends, or something in its place."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._way is _Way.ON:
            await self._send(message)
        elif self._way is _Way.STREAMED:
            await self._stream(message)
        elif self._way is _Way.GATHERED:
            await self._gather(message)

    async def _begin(self, message: AsgiMessage) -> None:
        headers: list[Header] = [*message["headers"]]
        head = _Head(message["status"], dict(headers).get(LENGTH))
        # An error was not computed either.
        may_wait = head.is_good and self._computes
        standing = await self._gate.settled(self._holding.change) if may_wait else Standing.PROVED
        now = self._gate.holding if self._computes else self._gate.known
        if head.is_whole_answer and (demand := self._unmet(now)) is not None:
            self._way = _Way.WITHHELD
            await unmet(self._send, demand, now)
            return
        headers += _told(_VERSION, self._holding)
        if head.length is not None:
            headers += _told(_END, now)
        message = {**message, "headers": headers}
        if head.is_whole_answer and standing is Standing.FAILED:
            self._way, self._head, self._reword = _Way.GATHERED, message, marked
        elif head.is_short_refusal:
            self._way, self._head = _Way.GATHERED, message
        else:
            self._way = _Way.STREAMED if may_wait and head.length is None else _Way.ON
            await self._send(message)

    async def _stream(self, message: AsgiMessage) -> None:
        if await self._gate.settled(self._holding.change) is Standing.FAILED:
            # What has no place for the marker raises: then the connection breaks.
            message = {**message, "body": marked_events(message.get("body", b""))}
        demand, body = self._demand, message.get("body", b"")
        if demand is not None and demand.is_end_told and DONE in body:
            told = compact(_event(self._holding, self._gate.holding))
            message = {**message, "body": before_done(body, told)}
        await self._send(message)

    async def _gather(self, message: AsgiMessage) -> None:
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

    def _unmet(self, now: Holding) -> Demand | None:
        """Return the demand if what the engine holds at the end is not what was asked for.

        An exact version must have been loaded all the time: from there and back is too far.
        """
        demand = self._demand
        if demand is None:
            return None
        is_same = demand.exact is None or now == self._holding
        is_met = is_same and demand.verdict(now.version.decode()) is DemandVerdict.MET
        return None if is_met else demand


def telling(send: Send, gate: Gate) -> Send:
    """Tell the version on a reply that waits for nothing; none while nobody has proved one."""

    async def told(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_told(_VERSION, gate.known)]}
        await send(message)

    return told


async def malformed(send: Send, error: DemandError) -> None:
    """Answer that a header names no version."""
    content = error_of(_BAD_REQUEST, "BadRequestError", str(error), error.header)
    await answer(send, _BAD_REQUEST, compact(content))


async def unmet(send: Send, demand: Demand, now: Holding) -> None:
    """Answer that the engine does not hold what was asked for, and whether to ask again."""
    version = now.version.decode()
    header = paths.EXACT_VERSION_HEADER if demand.exact else paths.MIN_VERSION_HEADER
    wanted = {"exact": demand.exact, "minimum": demand.minimum}
    fields = {"version": version or None} | {key: one for key, one in wanted.items() if one}
    asked = " and ".join(f"{key} {one}" for key, one in wanted.items() if one)
    if demand.verdict(version) is DemandVerdict.NO_ORDER:
        message = (
            f"{version} and {demand.minimum} have no order: a minimum is compared by the number"
            f" at the end of names that are alike before it. Ask with {paths.EXACT_VERSION_HEADER}"
        )
        content = error_of(_BAD_REQUEST, "BadRequestError", message, header, **fields)
        await answer(send, _BAD_REQUEST, compact(content), _told(_VERSION, now))
        return
    message = (
        f"this worker serves {version or 'a version that it was not told'} and {asked} was asked"
        " for: try again, or another worker"
    )
    content = error_of(409, "ConflictError", message, header, **fields)
    await answer(send, 409, compact(content), [*_told(_VERSION, now), _RETRY_AFTER])


async def failed(send: Send) -> None:
    """Answer that the weights which answered failed their proof."""
    await _unavailable(send, "the weights that answered failed their proof: send the request again")


async def turned_away(send: Send) -> None:
    """Answer that nobody shall wait for this engine."""
    message = (
        "this worker is out of service, because its weights were not proved: send the request"
        " to another worker, or again later"
    )
    await _unavailable(send, message)


async def _unavailable(send: Send, message: str) -> None:
    content = error_of(503, "ServiceUnavailableError", message, None)
    await answer(send, 503, compact(content), [_RETRY_AFTER])


def _event(began: Holding, now: Holding) -> Mapping[str, object]:
    """Tell in a stream what heads tell of a reply that goes out whole.

    In the form of OpenAI's last event, of usage: clients know one without choices.
    """
    versions = {"version": began.version.decode(), "version_end": now.version.decode()}
    told = {name: version or None for name, version in versions.items()}
    return {
        "object": "rlfleet.version",
        "choices": [],
        **told,
        "changes": now.change - began.change,
    }


def _told(name: bytes, holding: Holding) -> list[Header]:
    return [(name, holding.version)] if holding.version else []
