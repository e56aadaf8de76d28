"""/tokenize and /detokenize: vLLM's own, with what it passes over refused.

vLLM takes a request that has both a prompt and messages for one of messages, ignores what
it does not know, ignores flags of the template in the place where they do not count, and
decodes an id that the model does not have to nothing. A client would count other ids than
it sends.
"""

from typing import Any

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import FieldError, object_of, parsed
from rlfleet_engine.rewrite.rewrite import Answered, Ask
from rlfleet_engine.rewrite.shapes import kept_ids
from rlfleet_engine.vllm.vocabulary import check_ids, tokens_of

PATH = "/tokenize"
BACK_PATH = "/detokenize"
_KWARGS = "chat_template_kwargs"
_FLAGS = {"add_generation_prompt": True, "continue_final_message": False}
"""With what counts if a request does not say."""
_BOTH = frozenset({"model", "add_special_tokens", "return_token_strs"})
_COMPLETION = _BOTH | {"prompt"}
_CHAT = (
    _BOTH
    | _FLAGS.keys()
    | {"messages", "tools", "chat_template", _KWARGS, "media_io_kwargs", "mm_processor_kwargs"}
    | {kept_ids.FIELD}
)


def check(content: dict[str, Any]) -> None:
    """Raise FieldError for what vLLM would pass over; null is as good as nothing."""
    given = {name for name, value in content.items() if value is not None}
    if "messages" in given:
        _check_names("messages", given, _CHAT)
        _check_flags(content)
    elif "prompt" in given:
        _check_names("a prompt", given, _COMPLETION)


def _check_names(form: str, given: set[str], known: frozenset[str]) -> None:
    for name in sorted(given - known):
        raise FieldError(name, f"is no field beside {form}; there are {', '.join(sorted(known))}")


def _check_flags(content: dict[str, Any]) -> None:
    hidden = object_of(content, _KWARGS)
    for name, default in _FLAGS.items():
        counts = default if content.get(name) is None else content[name]
        if hidden.get(name) is not None and hidden[name] != counts:
            raise FieldError(
                f"{_KWARGS}.{name}", f"would not count: {name} is {counts}; say it at the top level"
            )


async def turn(body: bytes, ask: Ask) -> Answered | None:
    """Check a request; let its conversation keep its ids. Raises FieldError."""
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
    told = whole | {"count": len(ids), "tokens": ids}
    if content.get("return_token_strs"):
        told["token_strs"] = tokens_of(vocabulary, ids, kept.field)
    return Answered(compact(told))


async def turn_back(body: bytes, ask: Ask) -> None:
    """Refuse ids that the model does not have; all else is vLLM's. Raises FieldError.

    A model may have more ids than its tokenizer has tokens, and sample one: it has no text.
    """
    ids = (parsed(body) or {}).get("tokens")
    if isinstance(ids, list) and all(type(one) is int and one >= 0 for one in ids):
        check_ids(ask.vocabulary(), ids, "tokens")
