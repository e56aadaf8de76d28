"""The interface of request rewriting, and the wrapper that translates replies.

A shape is a form of request or reply that a client uses and vLLM lacks. Pure functions in the
shape's own file translate the request into vLLM's form and the reply back. Calls to vLLM on the
way must belong to the client's request in flight. A streamed reply must stay a stream, event by
event.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rlfleet_engine.asgi import EVENT_STREAM, LENGTH, Header, Send, error_of, resized
from rlfleet_engine.sse import BETWEEN, DONE, data_of, with_data
from rlfleet_engine.vllm.vocabulary import Vocabulary


class ReplyRewrite(Protocol):
    """Translates the reply to one request."""

    def whole(self, body: bytes) -> bytes:
        """Translate a complete reply. Raises IncompleteReplyError."""

    def event(self, data: bytes) -> bytes:
        """Translate the data of one event, by default as a reply. Raises IncompleteReplyError."""
        return self.whole(data)

    def refusal(self, body: bytes) -> bytes:
        """Translate an error, if it may name fields that the client did not send."""
        return body


class IncompleteReplyError(Exception):
    """The engine's reply lacks something that the client requested."""


class AnsweredError(Exception):
    """vLLM returned an error to an inner call; the client gets that error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"vLLM answered {status}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class RequestRewrite:
    """The request for vLLM in place of the client's."""

    path: str
    body: bytes
    back: ReplyRewrite | None = None


@dataclass(frozen=True, slots=True)
class DirectAnswer:
    """A complete reply, made from inner calls."""

    body: bytes


class InnerCall(Protocol):
    """Calls vLLM in process."""

    async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Call one of vLLM's routes. Raises AnsweredError."""

    def vocabulary(self) -> Vocabulary:
        """Return the served model's vocabulary."""

    def context_length(self) -> int:
        """Return the limit of tokens in prompt and reply together."""


Turn = Callable[[bytes, InnerCall], Awaitable[RequestRewrite | DirectAnswer | None]]
"""Turns the body of one route's requests; None leaves it as it is. Raises FieldError."""

_FAILED = 500
_FAULTS = 400


class RewritingSend:
    """Replaces ``send`` to translate the reply of one request."""

    __slots__ = ("_back", "_gathered", "_head", "_is_over", "_is_stream", "_send")

    def __init__(self, send: Send, back: ReplyRewrite) -> None:
        self._send = send
        self._back = back
        self._head: dict[str, Any] = {}
        self._gathered = b""
        self._is_stream = False
        self._is_over = False

    async def __call__(self, message: Any) -> None:
        """Translate and send one of vLLM's messages."""
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
        """Translate one event; after an error send only the stream's end."""
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
    return error_of(_FAILED, "InternalServerError", str(error))
