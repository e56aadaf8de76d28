"""Chat completions that keep the token ids of earlier turns (kept_ids.py).

vLLM renders the messages by its own route, which --no-enable-scale-out closes. The corrected
prompt continues as a prompt of token ids.
"""

from rlfleet_engine.json_body import FieldError, may_name, parsed
from rlfleet_engine.rewrite.rewrite import InnerCall, RequestRewrite
from rlfleet_engine.rewrite.shapes import chat, kept_ids, prompt_ids

_RENDER_PATH = f"{chat.PATH}/render"


async def turn(body: bytes, ask: InnerCall) -> RequestRewrite | None:
    """Translate a chat completion, with or without kept ids. Raises FieldError."""
    content = parsed(body) if may_name(body, kept_ids.NAMES) else None
    kept = None if content is None else kept_ids.prefix_of(content)
    if content is None or kept is None:
        return await chat.turn(body, ask)
    whole_prompt = prompt_ids.field_of(content)
    if whole_prompt is not None:
        if kept.field == kept_ids.FIELD:
            raise FieldError(kept.field, f"conflicts with {whole_prompt}; remove one of them")
        return await chat.turn(body, ask)
    asked = kept_ids.without(content)
    whole = await ask(_RENDER_PATH, asked)
    so_far = await ask(_RENDER_PATH, kept_ids.so_far(asked, kept))
    ids = kept.spliced(so_far["token_ids"], whole["token_ids"], ask.vocabulary())
    return chat.turned(asked | {"tokens": ids}, ask)
