"""Prompts given in token ids to a chat completion: ``tokens``, or ``nvext.token_data``.

vLLM takes them where the second of two engines gets those of the first, in
``kv_transfer_params``, and then renders no messages. That its vocabulary has them is checked
here, because not every release names the field. Whatever would make it render messages
nevertheless is refused here: an answer to another prompt than the one that was given is worse
than none.
"""

from typing import Any

from rlfleet_engine.json_body import FieldError, object_of
from rlfleet_engine.vllm.vocabulary import Vocabulary, check_ids

NAME = b'"tokens"'
_TOP = "tokens"
_BELOW = "nvext.token_data"
_GIVEN = "kv_transfer_params"
_IDS = "prompt_token_ids"
VLLM_NAME = f"{_GIVEN}.{_IDS}".encode()
"""What vLLM calls them when it refuses them."""
_TEXT = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})
_MEDIA = ("image", "audio", "video", "input_audio", "input_image")


def field_of(content: dict[str, Any]) -> str | None:
    """Return the name of the field that gives the prompt; None if messages do.

    Raises FieldError.
    """
    named = {
        _TOP: content.get(_TOP),
        _BELOW: object_of(content, "nvext").get("token_data"),
    }
    given = [field for field, ids in named.items() if ids is not None]
    if len(given) > 1 and named[_TOP] != named[_BELOW]:
        raise FieldError(_BELOW, f"differs from {_TOP}: give the prompt once")
    return given[0] if given else None


def with_ids(content: dict[str, Any], field: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """Give vLLM the ids of this field. Raises FieldError."""
    place = content if field == _TOP else object_of(content, "nvext")
    ids = place.get(field.rpartition(".")[2])
    if not isinstance(ids, list) or not ids or any(type(one) is not int or one < 0 for one in ids):
        raise FieldError(field, "must be a list of token ids, of one at least")
    _check_beside(content, field)
    if max(ids) >= vocabulary.size:
        check_ids(vocabulary, ids, field)
    return {
        **{name: value for name, value in content.items() if name != _TOP},
        "messages": content.get("messages", []),
        _GIVEN: {**object_of(content, _GIVEN), _IDS: ids},
    }


def _check_beside(content: dict[str, Any], field: str) -> None:
    for name in ("echo", "truncate_prompt_tokens"):
        if content.get(name):
            raise FieldError(name, f"cannot be asked for beside {field}, which is the whole prompt")
    messages = content.get("messages")
    for message in messages if isinstance(messages, list) else []:
        parts = message.get("content") if isinstance(message, dict) else None
        if isinstance(parts, list) and any(map(_is_media, parts)):
            raise FieldError("messages", f"must be text beside {field}: media have no token ids")


def _is_media(part: object) -> bool:
    return isinstance(part, dict) and (
        part.get("type", "text") not in _TEXT or any(name.startswith(_MEDIA) for name in part)
    )
