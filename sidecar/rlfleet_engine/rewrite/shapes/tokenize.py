"""/tokenize and /detokenize: rejects requests of which vLLM would ignore a part.

vLLM ignores the prompt if there are messages, unknown fields, and template flags inside of
chat_template_kwargs. It decodes an unknown id to nothing. Then a client would count other ids
than it sends.
"""

from typing import Any

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import FieldError, object_of, parsed
from rlfleet_engine.rewrite.rewrite import DirectAnswer, InnerCall
from rlfleet_engine.rewrite.shapes import kept_ids
from rlfleet_engine.vllm.vocabulary import check_ids, tokens_of

PATH = "/tokenize"
BACK_PATH = "/detokenize"
_KWARGS = "chat_template_kwargs"
_FLAGS = {"add_generation_prompt": True, "continue_final_message": False}
"""Template flags with their defaults."""
_BOTH = frozenset({"model", "add_special_tokens", "return_token_strs"})
_COMPLETION = _BOTH | {"prompt"}
_CHAT = (
    _BOTH
    | _FLAGS.keys()
    | {"messages", "tools", "chat_template", _KWARGS, "media_io_kwargs", "mm_processor_kwargs"}
    | {kept_ids.FIELD}
)


def check(content: dict[str, Any]) -> None:
    """Raise FieldError for a field that vLLM would ignore; null counts as absent."""
    given = {name for name, value in content.items() if value is not None}
    if "messages" in given:
        _check_names("messages", given, _CHAT)
        _check_flags(content)
    elif "prompt" in given:
        _check_names("a prompt", given, _COMPLETION)


def _check_names(form: str, given: set[str], known: frozenset[str]) -> None:
    for name in sorted(given - known):
        raise FieldError(name, f"is no field with {form}; use {', '.join(sorted(known))}")


def _check_flags(content: dict[str, Any]) -> None:
    hidden = object_of(content, _KWARGS)
    for name, default in _FLAGS.items():
        counts = default if content.get(name) is None else content[name]
        if hidden.get(name) is not None and hidden[name] != counts:
            raise FieldError(
                f"{_KWARGS}.{name}", f"is ignored ({name} is {counts}); set it at the top level"
            )


async def turn(body: bytes, ask: InnerCall) -> DirectAnswer | None:
    """Check a request, and keep the ids of its earlier turns. Raises FieldError."""
    content = parsed(body)
    if content is None:
        return None
    check(content)
    kept = kept_ids.prefix_of(content)
    if kept is None:
        return None
    asked = kept_ids.without(content) | {"return_token_strs": False}
    whole = await ask(PATH, asked)
    so_far = await ask(PATH, kept_ids.so_far(asked, kept))
    vocabulary = ask.vocabulary()
    ids = kept.spliced(so_far["tokens"], whole["tokens"], vocabulary)
    reply = whole | {"count": len(ids), "tokens": ids}
    if content.get("return_token_strs"):
        reply["token_strs"] = tokens_of(vocabulary, ids, kept.field)
    return DirectAnswer(compact(reply))


async def turn_back(body: bytes, ask: InnerCall) -> None:
    """Reject ids that the model does not have. Raises FieldError.

    A model may have, and sample, ids beyond its tokenizer's tokens; they decode to nothing.
    """
    ids = (parsed(body) or {}).get("tokens")
    if isinstance(ids, list) and all(type(one) is int and one >= 0 for one in ids):
        check_ids(ask.vocabulary(), ids, "tokens")
