"""Which of the base model's tensors a version may omit. Pure.

The engine reports the tensors that it read at boot, and a version must hold those. It ignored
the others in the base model's files: multi-token prediction that is not used, old buffers, a
head that is tied. Without a report, the names that vLLM is known to ignore are assumed.

It must stay true that each version must hold every tensor that any rank has read.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlfleet_contract.engine.rank_report import Consumed
from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import DRAFTER, Experts, Renames, unpacked

HEAD = re.compile(r"(^|\.)lm_head\.weight$")
ROTARY = re.compile(r"rotary_(pos_)?emb\.(inv_freq|cos_cached|sin_cached)$")
"""Tables that a model computes from its config; older releases of transformers saved them."""
IGNORED = re.compile(rf"{DRAFTER.pattern}|{ROTARY.pattern}")
_LAYER = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class RequiredTensors:
    """What a version may omit, rename or fuse."""

    boot: str | None
    """The boot that reported it; None if it is assumed."""
    optional: tuple[str, ...]
    tied: bool
    renames: Renames | None = None
    """How a version's names may differ from the base model's."""
    experts: Experts | None = None
    """Layers whose experts may be fused or separate."""
    omits_drafters: bool = False
    """Whether a version may hold a drafter's tensors that the base model lacks."""


def reported_by(
    boot: str, names: Collection[str], ranks: Sequence[Consumed | None]
) -> RequiredTensors | None:
    """Return the needs by the reports of all ranks; None if one is missing."""
    reports = [one for one in ranks if one is not None]
    if len(reports) < max((one.ranks for one in reports), default=1) or len(reports) < len(ranks):
        # Missing ranks may have read other tensors, such as their own experts.
        return None
    read = frozenset[str]().union(*(unpacked(one.names) for one in reports))
    if not read & set(names):
        return None
    tied = any(one.tied for one in reports)
    optional = set(names) - read | _heads(names, tied=tied)
    return RequiredTensors(
        boot,
        tuple(sorted(optional)),
        tied,
        _common(reports),
        _experts(reports),
        all(one.omits_drafters for one in reports),
    )


def _common(reports: Sequence[Consumed]) -> Renames | None:
    """Return the renames if all ranks agree."""
    first = reports[0].renames
    return first if all(one.renames == first for one in reports) else None


def _experts(reports: Sequence[Consumed]) -> Experts | None:
    """Return the layers of all ranks: with pipeline parallelism each has some."""
    named = [one.experts for one in reports if one.experts is not None]
    places = tuple(sorted({place for one in named for place in one.places}))
    alike = {one.model_copy(update={"places": places}) for one in named}
    return alike.pop() if len(alike) == 1 else None


def assumed(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> RequiredTensors:
    """Return the needs without a report."""
    tied = _is_tied(tensors, config)
    ignored = drafters(tensors, config)
    return RequiredTensors(None, tuple(sorted(ignored | _heads(tensors, tied=tied))), tied)


def drafters(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> frozenset[str]:
    """Return the tensors of speculative decoding, by their names.

    The model checks a drafter's proposals, so its weights change no answer.
    """
    layers = _stated(config, "num_hidden_layers")
    return frozenset(n for n in tensors if IGNORED.search(n) or _is_beyond(n, layers))


def _heads(names: Iterable[str], *, tied: bool) -> set[str]:
    return {name for name in names if tied and HEAD.search(name)}


def _is_tied(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> bool:
    """Return whether head and embeddings are one; many configs leave it to their class.

    Without a key, it follows from the absence of a head.
    """
    stated = _stated(config, "tie_word_embeddings")
    return stated if isinstance(stated, bool) else not any(map(HEAD.search, tensors))


def _stated(config: Mapping[str, object], key: str) -> object:
    text = config.get("text_config")
    nested = text if isinstance(text, dict) else {}
    return config.get(key, nested.get(key))


def _is_beyond(name: str, layers: object) -> bool:
    """Return whether this is beyond the last layer, where vLLM looks for a drafter's layers."""
    found = _LAYER.match(name)
    return found is not None and isinstance(layers, int) and int(found[1]) >= layers
