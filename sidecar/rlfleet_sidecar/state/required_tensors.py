"""Which of the boot model's tensors a version may leave out. Pure.

The engine says what its own load read when it booted, and a version must hold that. What the
base model's files list besides, the engine ignored: multi-token prediction that is not used,
old buffers, a head that is tied. Where the engine did not say, it is assumed from the names
that vLLM is known to ignore.

It must stay true that a tensor which any rank read is demanded of each version.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlfleet_contract.engine.rank_report import Consumed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import Experts, Renames, unpacked

HEAD = re.compile(r"(^|\.)lm_head\.weight$")
_IGNORED = re.compile(
    r"^mtp\.|(^|[._])nextn|rotary_(pos_)?emb\.(inv_freq|cos_cached|sin_cached)$"
)  # fmt: skip
_LAYER = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a version need not hold, and whether its head is its embeddings."""

    boot: str | None
    """Of the engine that said so; None where it is assumed."""
    optional: tuple[str, ...]
    tied: bool
    renames: Renames | None = None
    """By which a version's names may differ from the base model's."""
    experts: Experts | None = None
    """Layers whose experts a version may hold fused or one by one."""


def told_by(boot: str, names: Collection[str], ranks: Sequence[Consumed | None]) -> Needs | None:
    """Tell what an engine said of the base model's names; None if not all of it did."""
    told = [one for one in ranks if one is not None]
    if len(told) < max((one.ranks for one in told), default=1) or len(told) < len(ranks):
        # Ranks of another engine may have read what these did not: experts are spread out.
        return None
    read = frozenset[str]().union(*(unpacked(one.names) for one in told))
    if not read & set(names):
        return None
    tied = any(one.tied for one in told)
    optional = set(names) - read | _heads(names, tied=tied)
    return Needs(boot, tuple(sorted(optional)), tied, _common(told), _experts(told))


def _common(told: Sequence[Consumed]) -> Renames | None:
    """Tell the rules that all ranks name."""
    first = told[0].renames
    return first if all(one.renames == first for one in told) else None


def _experts(told: Sequence[Consumed]) -> Experts | None:
    """Join the layers that ranks name: each has some of them where a pipeline spreads them."""
    named = [one.experts for one in told if one.experts is not None]
    places = tuple(sorted({place for one in named for place in one.places}))
    alike = {one.model_copy(update={"places": places}) for one in named}
    return alike.pop() if len(alike) == 1 else None


def assumed(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> Needs:
    """Tell what to go by where no engine said it."""
    tied = _is_tied(tensors, config)
    ignored = drafters(tensors, config)
    return Needs(None, tuple(sorted(ignored | _heads(tensors, tied=tied))), tied)


def drafters(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> frozenset[str]:
    """Return the tensors that only speculative decoding computes with, by their names.

    What a drafter proposes is checked by the model: no answer moves with its weights.
    """
    layers = _stated(config, "num_hidden_layers")
    return frozenset(n for n in tensors if _IGNORED.search(n) or _is_beyond(n, layers))


def _heads(names: Iterable[str], *, tied: bool) -> set[str]:
    return {name for name in names if tied and HEAD.search(name)}


def _is_tied(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> bool:
    """Tell whether the head is the embeddings: many configs leave it to their class.

    A model that boots without a head of its own has no other.
    """
    stated = _stated(config, "tie_word_embeddings")
    return stated if isinstance(stated, bool) else not any(map(HEAD.search, tensors))


def _stated(config: Mapping[str, object], key: str) -> object:
    text = config.get("text_config")
    nested = text if isinstance(text, dict) else {}
    return config.get(key, nested.get(key))


def _is_beyond(name: str, layers: object) -> bool:
    """Tell whether this is of a layer behind the last one: there vLLM looks for a drafter's."""
    found = _LAYER.match(name)
    return found is not None and isinstance(layers, int) and int(found[1]) >= layers
