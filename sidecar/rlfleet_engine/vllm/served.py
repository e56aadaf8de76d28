"""Reads vocabulary and limits of the served model from vLLM's serving objects."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rlfleet_engine.asgi import Scope
from rlfleet_engine.vllm.vocabulary import Vocabulary


class ServedVocabulary:
    """The vocabulary of the model that vLLM serves."""

    def __init__(self, serving: Any) -> None:
        renderer, config = serving.renderer, serving.model_config
        self._tokenizer = renderer.get_tokenizer()
        named = (config.try_get_generation_config() or {}).get("eos_token_id") or []
        ends = {*(named if isinstance(named, list) else [named]), renderer.get_eos_token_id()}
        self.ends = frozenset(ends - {None})
        self.size = max(self._tokenizer.max_token_id + 1, config.get_vocab_size())

    def tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return the tokenizer's token of each id; None for an id beyond its tokens."""
        highest = self._tokenizer.max_token_id
        known = [one for one in ids if one <= highest]
        found = iter(self._tokenizer.convert_ids_to_tokens(known))
        return [next(found) if one <= highest else None for one in ids]


def vocabulary_of(scope: Scope) -> Vocabulary:
    """Return the vocabulary of the server that answers this request."""
    return _served(_serving(scope))


@lru_cache(maxsize=1)
def _served(serving: Any) -> Vocabulary:
    return ServedVocabulary(serving)


def context_length_of(scope: Scope) -> int:
    """Return the limit of tokens in prompt and reply together."""
    length: int = _serving(scope).model_config.max_model_len
    return length


def models_of(scope: Scope) -> Any | None:
    """Return vLLM's OpenAIServingModels; None before the engine is up."""
    application = scope.get("app")
    return getattr(getattr(application, "state", None), "openai_serving_models", None)


def _serving(scope: Scope) -> Any:
    return scope["app"].state.serving_tokenization
