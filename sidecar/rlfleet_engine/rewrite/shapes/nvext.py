"""``nvext``, by which Dynamo's clients ask a chat completion for more than OpenAI has.

What is asked for is vLLM's own, under other names, and told under ``nvext`` of the reply:
what belongs to a choice stands in the choice if there are several of them, and in a stream
with the choice's last event. Lengths agree and log probabilities are finite, or the reply
is an error. A choice without routed experts, as with every dense model, has null for them.
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
    """What a client wants to be told under nvext; other names than ours are passed over."""

    fields: frozenset[str] = frozenset()
    experts_start: int = 0
    """At which token of the prompt the routed experts begin."""


def wanted_of(content: dict[str, Any]) -> WantedFields:
    """Read what a request wants. Raises FieldError."""
    fields = object_of(content, "nvext").get("extra_fields") or []
    if not isinstance(fields, list) or any(not isinstance(one, str) for one in fields):
        raise FieldError("nvext.extra_fields", "must be a list of names")
    ours = _OURS.intersection(fields)
    if ours and content.get("include_reasoning") is False:
        raise FieldError("include_reasoning", "must not be false: it hides token ids")
    if _EXPERTS in ours and content.get("stream"):
        raise FieldError(
            "nvext.extra_fields", f"cannot have {_EXPERTS} of a stream: ask without stream"
        )
    start = content.get(_START)
    return WantedFields(ours, start if type(start) is int else 0)


def asked(content: dict[str, Any], wanted: WantedFields) -> dict[str, Any]:
    """Ask vLLM under its own names; what needs nothing is returned itself. Raises FieldError."""
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
            raise FieldError("nvext.agent_hints.priority", "must be a whole number")
        # Dynamo serves the higher one first, and vLLM the lower one.
        made["priority"] = -priority
    return made


def whole(reply: dict[str, Any], wanted: WantedFields) -> dict[str, Any]:
    """Put into a reply what was wanted. Raises IncompleteReplyError."""
    prompt = _ids(reply, "prompt_token_ids")
    told = _of_prompt(prompt, wanted)
    choices = [_told_in(choice, prompt, wanted) for choice in reply["choices"]]
    if len(choices) == 1:
        told |= choices[0].pop("nvext", {})
    return reply | {"choices": choices} | ({"nvext": told} if told else {})


def _told_in(choice: dict[str, Any], prompt: list[int], wanted: WantedFields) -> dict[str, Any]:
    parts = Parts(_ids(choice, "token_ids"), _logprobs(choice))
    parts.check()
    experts = experts_of(choice.get(_EXPERTS), wanted.experts_start)
    told = _of_choice(parts, prompt, wanted, {_EXPERTS: experts})
    # They are large, and clients look for them in one place alone.
    is_moved = not wanted.fields.isdisjoint({_EXPERTS, "engine_data"})
    kept = {name: one for name, one in choice.items() if not (is_moved and name == _EXPERTS)}
    return kept | {"nvext": told} if told else kept


@dataclass(slots=True)
class Parts:
    """The tokens of one choice, as far as they have come."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = None

    def add(self, other: "Parts") -> None:
        """Take what came next."""
        self.ids.extend(other.ids)
        if other.logprobs is not None:
            self.logprobs = [] if self.logprobs is None else self.logprobs
            self.logprobs.extend(other.logprobs)

    def check(self) -> None:
        """Raise IncompleteReplyError unless each token has a finite log probability, or none."""
        if self.logprobs is None:
            return
        if len(self.logprobs) != len(self.ids):
            raise IncompleteReplyError(
                f"the engine gave {len(self.ids)} tokens and {len(self.logprobs)} log probabilities"
            )
        for place, value in enumerate(self.logprobs):
            if not is_finite(value):
                raise IncompleteReplyError(
                    f"the engine has no finite log probability of token {place}"
                )


@dataclass(slots=True)
class Streams:
    """The choices of one streamed reply."""

    _prompt: list[int] = field(default_factory=list)
    _parts: dict[int, Parts] = field(default_factory=dict)

    def event(self, event: dict[str, Any], wanted: WantedFields) -> dict[str, Any]:
        """Take one event, and tell in the last one of a choice. Raises IncompleteReplyError."""
        self._prompt = event.get("prompt_token_ids") or self._prompt
        told: dict[str, Any] = {}
        for choice in event.get("choices") or []:
            new = Parts(choice.get("token_ids") or [], _logprobs(choice))
            new.check()
            parts = self._parts.setdefault(choice["index"], Parts())
            parts.add(new)
            if choice.get("finish_reason") is not None:
                parts.check()
                told |= _of_prompt(self._prompt, wanted)
                told |= _of_choice(parts, self._prompt, wanted, {})
        return event | {"nvext": told} if told else event


def _of_prompt(prompt: list[int], wanted: WantedFields) -> dict[str, Any]:
    return {name: prompt for name in _OF_PROMPT if name in wanted.fields}


def _of_choice(
    parts: Parts, prompt: list[int], wanted: WantedFields, experts: dict[str, Any]
) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if "completion_token_ids" in wanted.fields:
        told["completion_token_ids"] = parts.ids
    if _EXPERTS in wanted.fields:
        told |= experts
    if "engine_data" in wanted.fields:
        data: dict[str, Any] = {"prompt_token_ids": prompt, "completion_token_ids": parts.ids}
        if parts.logprobs is not None:
            data["completion_logprobs"] = parts.logprobs
        told["engine_data"] = data | experts
    return told


def _ids(place: dict[str, Any], name: str) -> list[int]:
    ids = place.get(name)
    if not isinstance(ids, list):
        raise IncompleteReplyError(f"the engine gave no {name}")
    return ids


def _logprobs(choice: dict[str, Any]) -> list[float] | None:
    content = (choice.get("logprobs") or {}).get("content")
    return None if content is None else [entry.get("logprob") for entry in content]
