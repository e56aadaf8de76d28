"""A request on its way to vLLM, and its reply on the way back, in a shape that vLLM has not.

A shape is a form of request or reply that some client has and vLLM has not. It is turned
into one that vLLM has; vLLM answers, and the answer is turned back. What a shape does to
bodies is decided by pure functions in its own file. It must stay true that whatever is
asked of vLLM on the way belongs to the one passage of the gate that the client's request
has, and that a streamed reply stays a stream, event by event.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rlfleet_engine.asgi import EVENT_STREAM, LENGTH, Header, Send, compact, error_of, resized
from rlfleet_engine.sse import BETWEEN, DONE, data_of, with_data
from rlfleet_engine.vllm.vocabulary import Vocabulary


class Back(Protocol):
    """Turns the reply to one request."""

    def whole(self, body: bytes) -> bytes:
        """Turn a reply that came whole. Raises IncompleteReplyError."""

    def event(self, data: bytes) -> bytes:
        """Turn the data of one event of a stream. Raises IncompleteReplyError."""

    def refusal(self, body: bytes) -> bytes:
        """Turn an error's body: it may name fields that the client did not send."""


class IncompleteReplyError(Exception):
    """The engine's reply lacks what the client asked for."""


class AnsweredError(Exception):
    """vLLM refused what it was asked on the way; the client gets that answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"vLLM answered {status}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Turned:
    """What vLLM is asked in place of what the client sent."""

    path: str
    body: bytes
    back: Back | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer itself, made of what vLLM was asked on the way."""

    body: bytes


class Ask(Protocol):
    """Asks vLLM from within."""

    async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one of vLLM's own routes. Raises AnsweredError."""

    def vocabulary(self) -> Vocabulary:
        """Ask what the tokenizer knows."""

    def context_length(self) -> int:
        """Ask how many tokens a prompt and what is made of it may have."""


Turn = Callable[[bytes, Ask], Awaitable[Turned | Answered | None]]
"""Turns the body of one route's requests; None leaves it as it is. Raises FieldError."""

_FAILED = 500
_FAULTS = 400


class Returning:
    """Stands in for ``send`` while a turned request is answered."""

    __slots__ = ("_back", "_gathered", "_head", "_is_over", "_is_stream", "_send")

    def __init__(self, send: Send, back: Back) -> None:
        self._send = send
        self._back = back
        self._head: dict[str, Any] = {}
        self._gathered = b""
        self._is_stream = False
        self._is_over = False

    async def __call__(self, message: Any) -> None:
        """Send what vLLM sends, turned."""
        if message["type"] == "http.response.start":
            self._head = dict(message)
            self._is_stream = _is_stream(message["headers"])
            if self._is_stream:
                await self._send(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._is_stream:
            await self._pass(message)
        else:
            await self._gather(message)

    async def _gather(self, message: Any) -> None:
        self._gathered += message.get("body", b"")
        if message.get("more_body", False):
            return
        status = self._head["status"]
        try:
            turn = self._back.refusal if status >= _FAULTS else self._back.whole
            body = turn(self._gathered)
        except IncompleteReplyError as error:
            status, body = _FAILED, _unusable(error)
        headers = resized(self._head["headers"], len(body))
        await self._send({**self._head, "status": status, "headers": headers})
        await self._send({**message, "body": body})

    async def _pass(self, message: Any) -> None:
        *events, rest = (self._gathered + message.get("body", b"")).split(BETWEEN)
        more = message.get("more_body", False)
        self._gathered, rest = (rest, b"") if more else (b"", rest)
        body = b"".join(map(self._event, events)) + rest
        if body or not more:
            await self._send({**message, "body": body})

    def _event(self, event: bytes) -> bytes:
        """Turn one event; after one that cannot be turned, nothing but the stream's end."""
        data = data_of(event)
        if data is None or data == DONE:
            return event + BETWEEN
        if self._is_over:
            return b""
        try:
            turned = self._back.event(data)
        except IncompleteReplyError as error:
            self._is_over = True
            turned = _unusable(error)
        return with_data(turned) + BETWEEN


def _is_stream(headers: list[Header]) -> bool:
    named = dict(headers)
    return LENGTH not in named and named.get(b"content-type", b"").startswith(EVENT_STREAM)


def _unusable(error: IncompleteReplyError) -> bytes:
    return compact(error_of(_FAILED, "InternalServerError", str(error), None))
