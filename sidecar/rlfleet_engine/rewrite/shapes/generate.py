"""/inference/v1/generate as renderers read it: vLLM tells the same in other forms.

Each log probability has its token under the name ``token_id:N`` and as an integer: vLLM has
the integer alone since 0.32, and the name alone before. It has both from any release, and
routed experts become an object. Both are done on the reply's bytes, because a long reply
has thousands of them: in a JSON text an unescaped quote stands in no string, so what is
looked for can be nothing but a key. All else stays as it came, byte for byte.

A stream whose prompt leaves no room for a token is asked for without the stream: vLLM
refuses it in any case, but only in the midst of a stream that has begun with 200.
"""

import re
from dataclasses import dataclass

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import may_name, parsed
from rlfleet_engine.rewrite.logprobs import check
from rlfleet_engine.rewrite.rewrite import Ask, Turned
from rlfleet_engine.rewrite.shapes.routed_experts import experts_of

PATH = "/inference/v1/generate"
_STREAM = (b"stream",)
_MIN_ID_BYTES = 2
"""In JSON: a digit and what parts it from the next."""
_LOGPROB = re.compile(rb'\{(?:"token_id":(\d+)|"token":"token_id:(\d+)"),"logprob":')
_NAMED = rb'{"token":"token_id:\1\2","token_id":\1\2,"logprob":'
_EXPERTS = re.compile(rb'"routed_experts":"([A-Za-z0-9+/=]*)"')


async def turn(body: bytes, ask: Ask) -> Turned | None:
    """Leave the request as it is but for a stream that cannot begin, and turn its reply."""
    if may_name(body, _STREAM):
        body = _refusable(body, ask.context_length())
    return Turned(PATH, body, GenerateBack(body))


def _refusable(body: bytes, context_length: int) -> bytes:
    """Ask without a stream for what is refused in any case; else the body itself."""
    if len(body) < context_length * _MIN_ID_BYTES:
        return body
    content = parsed(body) or {}
    ids = content.get("token_ids")
    if not content.get("stream") or not isinstance(ids, list) or len(ids) < context_length:
        return body
    return compact({name: content[name] for name in content if not name.startswith("stream")})


@dataclass(frozen=True, slots=True)
class GenerateBack:
    """Turns the reply to one request."""

    request: bytes

    def whole(self, body: bytes) -> bytes:
        """Put in what renderers look for. Raises IncompleteReplyError."""
        check(body)
        body = _LOGPROB.sub(_NAMED, body)
        if b'"routed_experts":"' not in body:
            return body
        start = self._experts_start()
        return _EXPERTS.sub(
            lambda found: b'"routed_experts":' + compact(experts_of(found[1].decode(), start)), body
        )

    def event(self, data: bytes) -> bytes:
        """Do the same to one event: it has the same form."""
        return self.whole(data)

    def refusal(self, body: bytes) -> bytes:
        """Leave it as it is."""
        return body

    def _experts_start(self) -> int:
        sampling = (parsed(self.request) or {}).get("sampling_params")
        start = sampling.get("routed_experts_prompt_start") if isinstance(sampling, dict) else None
        return start if type(start) is int else 0
