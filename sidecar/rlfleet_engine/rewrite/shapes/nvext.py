"""``nvext``: the extra fields of Dynamo's clients in a chat completion.

vLLM has these fields under other names; the reply has them under ``nvext``. With several choices
each has its own ``nvext``, and in a stream the choice's last event has it. If lengths differ or a
log probability is not finite, the reply is an error. A dense model has null for routed experts.
"""

from dataclasses import dataclass, field
from typing import Any

from rlfleet_engine.json_body import FieldError, object_of
from rlfleet_engine.rewrite.logprobs import is_finite
from rlfleet_engine.rewrite.rewrite import IncompleteReplyError
from rlfleet_engine.rewrite.shapes.routed_experts import experts_of

NAME = b'"nvext"'
_OF_PROMPT = ("token_ids", "prompt_token_ids")
_EXPERTS = "routed_experts"
_OURS = frozenset({*_OF_PROMPT, "completion_token_ids", "engine_data", _EXPERTS})
_START = "routed_experts_prompt_start"


@dataclass(frozen=True, slots=True)
class WantedFields:
    """The fields that a client requests under nvext; unknown names are ignored."""

    fields: frozenset[str] = frozenset()
    experts_start: int = 0
    """The first token of the prompt whose routed experts the client wants."""


def wanted_of(content: dict[str, Any]) -> WantedFields:
    """Read the requested fields. Raises FieldError."""
    fields = object_of(content, "nvext").get("extra_fields") or []
    if not isinstance(fields, list) or any(not isinstance(one, str) for one in fields):
        raise FieldError("nvext.extra_fields", "must be a list of names")
    ours = _OURS.intersection(fields)
    if ours and content.get("include_reasoning") is False:
        raise FieldError("include_reasoning", "must not be false: it hides token ids")
    if _EXPERTS in ours and content.get("stream"):
        raise FieldError("nvext.extra_fields", f"cannot have {_EXPERTS} in a stream; remove stream")
    start = content.get(_START)
    return WantedFields(ours, start if type(start) is int else 0)


def asked(content: dict[str, Any], wanted: WantedFields) -> dict[str, Any]:
    """Return the request with vLLM's names in place of nvext. Raises FieldError."""
    if content.get("nvext") is None:
        return content
    nvext = object_of(content, "nvext")
    made = {name: value for name, value in content.items() if name != "nvext"}
    if wanted.fields:
        made["return_token_ids"] = True
    if made.get("cache_salt") is None and nvext.get("cache_salt") is not None:
        made["cache_salt"] = nvext["cache_salt"]
    priority = object_of(nvext, "agent_hints", "nvext.agent_hints").get("priority")
    if priority is not None and made.get("priority") is None:
        if type(priority) is not int:
            raise FieldError("nvext.agent_hints.priority", "must be an integer")
        # Dynamo serves higher priorities first, vLLM lower ones.
        made["priority"] = -priority
    return made


def whole(reply: dict[str, Any], wanted: WantedFields) -> dict[str, Any]:
    """Add the requested fields to a complete reply. Raises IncompleteReplyError."""
    prompt = _ids(reply, "prompt_token_ids")
    found = _of_prompt(prompt, wanted)
    choices = [_with_nvext(choice, prompt, wanted) for choice in reply["choices"]]
    if len(choices) == 1:
        found |= choices[0].pop("nvext", {})
    return reply | {"choices": choices} | ({"nvext": found} if found else {})


def _with_nvext(choice: dict[str, Any], prompt: list[int], wanted: WantedFields) -> dict[str, Any]:
    parts = ChoiceTokens(_ids(choice, "token_ids"), _logprobs(choice))
    parts.check()
    experts = experts_of(choice.get(_EXPERTS), wanted.experts_start)
    found = _of_choice(parts, prompt, wanted, {_EXPERTS: experts})
    # Moved, not copied: they are large, and clients read one place only.
    is_moved = not wanted.fields.isdisjoint({_EXPERTS, "engine_data"})
    kept = {name: one for name, one in choice.items() if not (is_moved and name == _EXPERTS)}
    return kept | {"nvext": found} if found else kept


@dataclass(slots=True)
class ChoiceTokens:
    """The tokens of one choice that have arrived."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None

    def add(self, other: "ChoiceTokens") -> None:
        """Append later tokens."""
        self.ids.extend(other.ids)
        if other.logprobs is not None:
            self.logprobs = [] if self.logprobs is None else self.logprobs
            self.logprobs.extend(other.logprobs)

    def check(self) -> None:
        """Raise IncompleteReplyError unless all tokens, or none, have a finite log probability."""
        if self.logprobs is None:
            return
        if len(self.logprobs) != len(self.ids):
            raise IncompleteReplyError(
                f"engine returned {len(self.logprobs)} log probabilities for {len(self.ids)} tokens"
            )
        for place, value in enumerate(self.logprobs):
            if not is_finite(value):
                raise IncompleteReplyError(
                    f"engine returned log probability {value} for token {place}, expected a number"
                )


@dataclass(slots=True)
class StreamedChoices:
    """The choices of one streamed reply."""

    _prompt: list[int] = field(default_factory=list)
    _parts: dict[int, ChoiceTokens] = field(default_factory=dict)

    def event(self, event: dict[str, Any], wanted: WantedFields) -> dict[str, Any]:
        """Collect one event; add the fields to a choice's last. Raises IncompleteReplyError."""
        self._prompt = event.get("prompt_token_ids") or self._prompt
        found: dict[str, Any] = {}
        for choice in event.get("choices") or []:
            new = ChoiceTokens(choice.get("token_ids") or [], _logprobs(choice))
            new.check()
            parts = self._parts.setdefault(choice["index"], ChoiceTokens())
            parts.add(new)
            if choice.get("finish_reason") is not None:
                parts.check()
                found |= _of_prompt(self._prompt, wanted)
                found |= _of_choice(parts, self._prompt, wanted, {})
        return event | {"nvext": found} if found else event


def _of_prompt(prompt: list[int], wanted: WantedFields) -> dict[str, Any]:
    return {name: prompt for name in _OF_PROMPT if name in wanted.fields}


def _of_choice(
    parts: ChoiceTokens, prompt: list[int], wanted: WantedFields, experts: dict[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "completion_token_ids" in wanted.fields:
        found["completion_token_ids"] = parts.ids
    if _EXPERTS in wanted.fields:
        found |= experts
    if "engine_data" in wanted.fields:
        data: dict[str, Any] = {"prompt_token_ids": prompt, "completion_token_ids": parts.ids}
        if parts.logprobs is not None:
            data["completion_logprobs"] = parts.logprobs
        found["engine_data"] = data | experts
    return found


def _ids(place: dict[str, Any], name: str) -> list[int]:
    ids = place.get(name)
    if not isinstance(ids, list):
        raise IncompleteReplyError(f"engine returned no {name}")
    return ids


def _logprobs(choice: dict[str, Any]) -> list[float] | None:
    content = (choice.get("logprobs") or {}).get("content")
    return None if content is None else [entry.get("logprob") for entry in content]
