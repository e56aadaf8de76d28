"""Chat completions in the shapes that vLLM has not: ``tokens`` and ``nvext``."""

from dataclasses import dataclass, field
from typing import Any

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import FieldError, may_name, parsed
from rlfleet_engine.rewrite import logprobs
from rlfleet_engine.rewrite.rewrite import Ask, Turned
from rlfleet_engine.rewrite.shapes import nvext, prompt_ids

PATH = "/v1/chat/completions"
TOKENS_PATH = "/v1/chat/completions/tokens"
_NAMES = (prompt_ids.NAME, nvext.NAME)


async def turn(body: bytes, ask: Ask) -> Turned | None:
    """Turn a chat completion, if anything in it is not vLLM's own. Raises FieldError."""
    content = parsed(body) if may_name(body, _NAMES) else None
    found = None if content is None else turned(content, ask)
    return found or logprobs.watched(PATH, body)


async def turn_tokens(body: bytes, ask: Ask) -> Turned | None:
    """Turn a chat completion whose prompt must be given in ids. Raises FieldError."""
    content = parsed(body)
    if content is None:
        return Turned(PATH, body)
    if prompt_ids.field_of(content) is None:
        raise FieldError("tokens", "must be given on this route")
    return turned(content, ask)


def turned(content: dict[str, Any], ask: Ask) -> Turned | None:
    """Decide what vLLM is asked; None if it is what the client asked. Raises FieldError."""
    given = prompt_ids.field_of(content)
    wanted = nvext.wanted_of(content)
    asked = content if given is None else prompt_ids.with_ids(content, given, ask.vocabulary())
    asked = nvext.asked(asked, wanted)
    if asked is content:
        return None
    return Turned(PATH, compact(asked), ChatBack(given, wanted))


@dataclass(slots=True)
class ChatBack:
    """Turns the reply to one chat completion."""

    given: str | None
    wanted: nvext.WantedFields
    _streams: nvext.Streams = field(default_factory=nvext.Streams)

    def whole(self, body: bytes) -> bytes:
        """Put in what was wanted."""
        logprobs.check(body)
        reply = parsed(body) if self.wanted.fields else None
        return body if reply is None else compact(nvext.whole(reply, self.wanted))

    def event(self, data: bytes) -> bytes:
        """Keep what has come; tell it with the last event of a choice."""
        logprobs.check(data)
        event = parsed(data) if self.wanted.fields else None
        return data if event is None else compact(self._streams.event(event, self.wanted))

    def refusal(self, body: bytes) -> bytes:
        """Name the client's own field."""
        return body.replace(prompt_ids.VLLM_NAME, self.given.encode()) if self.given else body
