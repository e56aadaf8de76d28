"""Attends to all tokens where vLLM's build for a processor cannot choose some.

The indexer of a sparse attention chooses thousands of tokens, and a shorter prompt is attended to
as a whole. So answers are those of a GPU. The weights of the indexer are loaded, and change none.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from vllm.model_executor.layers.mla import MLAModules, MultiHeadLatentAttentionWrapper
from vllm.model_executor.models.deepseek_v2 import DeepseekV32IndexerCache


def use() -> None:
    """Do so for every engine of this process."""
    wrapper = MultiHeadLatentAttentionWrapper
    wrapper.__init__ = _Dense(wrapper.__init__)
    DeepseekV32IndexerCache.get_kv_cache_spec = _none


def _none(*_: Any) -> None: ...


class _Dense:
    """Makes an attention that chooses no tokens."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __get__(self, attention: Any, kind: Any) -> Any:
        """Return this as a method."""
        return partial(self, attention)

    def __call__(self, attention: Any, *arguments: Any, **named: Any) -> None:
        self._make(attention, *map(_dense, arguments), **named)


def _dense(argument: Any) -> Any:
    is_modules = isinstance(argument, MLAModules)
    return replace(argument, is_sparse=False) if is_modules else argument
