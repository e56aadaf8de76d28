"""Chat completions in shapes that vLLM lacks: ``tokens`` and ``nvext``."""

from dataclasses import dataclass, field
from typing import Any

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import FieldError, may_name, parsed
from rlfleet_engine.rewrite import logprobs
from rlfleet_engine.rewrite.rewrite import InnerCall, ReplyRewrite, RequestRewrite
from rlfleet_engine.rewrite.shapes import nvext, prompt_ids

PATH = "/v1/chat/completions"
TOKENS_PATH = "/v1/chat/completions/tokens"
_NAMES = (prompt_ids.NAME, nvext.NAME)


async def turn(body: bytes, ask: InnerCall) -> RequestRewrite | None:
    """Translate a chat completion with fields that vLLM lacks. Raises FieldError."""
    content = parsed(body) if may_name(body, _NAMES) else None
    found = None if content is None else turned(content, ask)
    return found or logprobs.watched(PATH, body)


async def turn_tokens(body: bytes, ask: InnerCall) -> RequestRewrite | None:
    """Translate a chat completion with a prompt of token ids. Raises FieldError."""
    content = parsed(body)
    if content is None:
        return RequestRewrite(PATH, body)
    if prompt_ids.field_of(content) is None:
        raise FieldError("tokens", "is required on this route: add the prompt's token ids")
    return turned(content, ask)


def turned(content: dict[str, Any], ask: InnerCall) -> RequestRewrite | None:
    """Return the request for vLLM; None if it is the client's. Raises FieldError."""
    given = prompt_ids.field_of(content)
    wanted = nvext.wanted_of(content)
    asked = content if given is None else prompt_ids.with_ids(content, given, ask.vocabulary())
    asked = nvext.asked(asked, wanted)
    if asked is content:
        return None
    return RequestRewrite(PATH, compact(asked), ChatReply(given, wanted))


@dataclass(slots=True)
class ChatReply(ReplyRewrite):
    """Translates the reply to one chat completion."""

    given: str | None
    wanted: nvext.WantedFields
    _streams: nvext.StreamedChoices = field(default_factory=nvext.StreamedChoices)

    def whole(self, body: bytes) -> bytes:
        """Add the requested fields."""
        logprobs.check(body)
        reply = parsed(body) if self.wanted.fields else None
        return body if reply is None else compact(nvext.whole(reply, self.wanted))

    def event(self, data: bytes) -> bytes:
        """Collect a choice's events, and add the requested fields to its last one."""
        logprobs.check(data)
        event = parsed(data) if self.wanted.fields else None
        return data if event is None else compact(self._streams.event(event, self.wanted))

    def refusal(self, body: bytes) -> bytes:
        """Replace vLLM's name of the prompt's field with the client's."""
        return body.replace(prompt_ids.VLLM_NAME, self.given.encode()) if self.given else body
