"""/inference/v1/generate with replies in the form that renderers read.

Each log probability gets its token as ``token_id:N`` and as an integer; vLLM has only the integer
since 0.32, and only the name before. Routed experts become an object. Both edits work on the
reply's bytes, because a long reply has thousands. That is safe: a JSON string holds no unescaped
quote, so each match is a key. All else stays byte for byte.

If the prompt of a stream leaves no room for a token, the request is sent without ``stream``:
vLLM rejects it in any case, but a stream only after its status 200.
"""

import re
from dataclasses import dataclass

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import may_name, parsed
from rlfleet_engine.rewrite.logprobs import check
from rlfleet_engine.rewrite.rewrite import InnerCall, ReplyRewrite, RequestRewrite
from rlfleet_engine.rewrite.shapes.routed_experts import experts_of

PATH = "/inference/v1/generate"
_STREAM = (b"stream",)
_MIN_ID_BYTES = 2
"""In JSON: a digit and a separator."""
_LOGPROB = re.compile(rb'\{(?:"token_id":(\d+)|"token":"token_id:(\d+)"),"logprob":')
_NAMED = rb'{"token":"token_id:\1\2","token_id":\1\2,"logprob":'
_EXPERTS = re.compile(rb'"routed_experts":"([A-Za-z0-9+/=]*)"')


async def turn(body: bytes, ask: InnerCall) -> RequestRewrite | None:
    """Keep the request, except a stream that cannot start, and translate its reply."""
    if may_name(body, _STREAM):
        body = _refusable(body, ask.context_length())
    return RequestRewrite(PATH, body, GenerateReply(body))


def _refusable(body: bytes, context_length: int) -> bytes:
    """Return the body, without ``stream`` if its prompt is too long."""
    if len(body) < context_length * _MIN_ID_BYTES:
        return body
    content = parsed(body) or {}
    ids = content.get("token_ids")
    if not content.get("stream") or not isinstance(ids, list) or len(ids) < context_length:
        return body
    return compact({name: content[name] for name in content if not name.startswith("stream")})


@dataclass(frozen=True, slots=True)
class GenerateReply(ReplyRewrite):
    """Translates the reply to one request."""

    request: bytes

    def whole(self, body: bytes) -> bytes:
        """Add the fields that renderers read, also to an event. Raises IncompleteReplyError."""
        check(body)
        body = _LOGPROB.sub(_NAMED, body)
        if b'"routed_experts":"' not in body:
            return body
        start = self._experts_start()
        return _EXPERTS.sub(
            lambda found: b'"routed_experts":' + compact(experts_of(found[1].decode(), start)), body
        )

    def _experts_start(self) -> int:
        sampling = (parsed(self.request) or {}).get("sampling_params")
        start = sampling.get("routed_experts_prompt_start") if isinstance(sampling, dict) else None
        return start if type(start) is int else 0
