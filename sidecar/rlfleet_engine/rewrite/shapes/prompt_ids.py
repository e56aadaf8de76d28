"""Chat completions with a prompt of token ids: ``tokens``, or ``nvext.token_data``.

vLLM accepts ids in ``kv_transfer_params``, its field for disaggregated engines, and then renders
no messages. The ids are checked against the vocabulary here, because not every release names the
field in its error. Fields that would make vLLM render messages anyway are rejected, because it
would answer another prompt.
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
"""The field's name in vLLM's errors."""
_TEXT = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})
_MEDIA = ("image", "audio", "video", "input_audio", "input_image")


def field_of(content: dict[str, Any]) -> str | None:
    """Return the name of the field with token ids; None without one. Raises FieldError."""
    named = {
        _TOP: content.get(_TOP),
        _BELOW: object_of(content, "nvext").get("token_data"),
    }
    given = [field for field, ids in named.items() if ids is not None]
    if len(given) > 1 and named[_TOP] != named[_BELOW]:
        raise FieldError(_BELOW, f"differs from {_TOP}; remove one of them")
    return given[0] if given else None


def with_ids(content: dict[str, Any], field: str, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the request with the ids where vLLM reads them. Raises FieldError."""
    place = content if field == _TOP else object_of(content, "nvext")
    ids = place.get(field.rpartition(".")[2])
    if not isinstance(ids, list) or not ids or any(type(one) is not int or one < 0 for one in ids):
        raise FieldError(field, "must be a list of at least one token id (integers of at least 0)")
    _check_other_fields(content, field)
    if max(ids) >= vocabulary.size:
        check_ids(vocabulary, ids, field)
    return {
        **{name: value for name, value in content.items() if name != _TOP},
        "messages": content.get("messages", []),
        _GIVEN: {**object_of(content, _GIVEN), _IDS: ids},
    }


def _check_other_fields(content: dict[str, Any], field: str) -> None:
    for name in ("echo", "truncate_prompt_tokens"):
        if content.get(name):
            raise FieldError(name, f"conflicts with {field}, the complete prompt; remove it")
    messages = content.get("messages")
    for message in messages if isinstance(messages, list) else []:
        parts = message.get("content") if isinstance(message, dict) else None
        if isinstance(parts, list) and any(map(_is_media, parts)):
            raise FieldError("messages", f"must have no media with {field}; remove the media")


def _is_media(part: object) -> bool:
    return isinstance(part, dict) and (
        part.get("type", "text") not in _TEXT or any(name.startswith(_MEDIA) for name in part)
    )
