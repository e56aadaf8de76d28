"""Describes the properties of an engine that its reload depends on."""

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import takewhile
from typing import Any

import vllm
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

from rlfleet_contract.worker.selftest import EngineDescription
from rlfleet_engine.vllm import sendable
from rlfleet_engine.vllm.releases import is_tested

_SHAPE, _PACKED = ".weight_shape", ".weight_packed"
_OF_PICTURES = (".mlp.gate.weight_1", ".wte.new_embedding")
"""Ends of a language model's own kinds that only the tokens of pictures use.

Ernie 4.5 VL has a router for its vision experts, and Molmo rows for such tokens.
"""
_INDEXER = re.compile(r"\.indexer\.|\.index_[qk]_(proj|norm)\.")
"""Parts of a sparse attention that choose the tokens to attend to.

DeepSeek V3.2, GLM-5 and MiniMax-M3 choose 2,048, so a probe is attended to as a whole.
"""


def described(worker: Any, kinds: Sequence[str]) -> EngineDescription:
    """Return the description of one rank; ``kinds`` are the kinds of its base model's tensors."""
    config = worker.vllm_config
    ranks = config.parallel_config
    architectures = tuple(config.model_config.hf_config.architectures or ())
    parts = (
        vllm.__version__,
        worker.device.type,
        config.compute_hash(),
        config.model_config.dtype,
        ranks.tensor_parallel_size,
        ranks.pipeline_parallel_size,
    )
    return EngineDescription(
        release=vllm.__version__,
        is_tested=is_tested(vllm.__version__),
        device=worker.device.type,
        architectures=architectures,
        fingerprint=sha256(" ".join(map(str, parts)).encode()).hexdigest()[:32],
        unreached=tuple(unreached(worker.get_model(), kinds)),
        unsendable=sendable.objection(worker.device.type, architectures),
        unreloadable=_of_torchao(config.quant_config),
    )


def _of_torchao(scheme: Any) -> str | None:
    """Return why tensors that torchao serialised are not reloaded; None for all others.

    Only vLLM's loader of files joins their parts, by metadata of the headers.
    """
    is_serialised = getattr(scheme, "is_checkpoint_torchao_serialized", False)
    return "its base model was quantised by torchao" if is_serialised else None


def unreached(model: Any, kinds: Sequence[str]) -> list[str]:
    """Return the kinds that no answer to a probe depends on.

    compressed-tensors writes the shape of each packed weight, which vLLM reads and knows already.
    """
    unused = (*_mapped(model), *_marked(model), *_next_to_text(model))
    return [
        kind
        for kind in kinds
        if kind.endswith(_OF_PICTURES)
        or _INDEXER.search(kind)
        or _is_shape(kind, kinds)
        or _in_part(model, kind, unused)
    ]


def _mapped(model: Any) -> tuple[str, ...]:
    """Return the prefixes of a multimodal model's parts, which most models map for adapters."""
    mapping = getattr(model, "get_mm_mapping", None)
    if mapping is None:
        return ()
    parts = mapping()
    return (*_prefixes(parts.connector), *_prefixes(parts.tower_model))


def _marked(model: Any) -> Iterator[str]:
    """Yield what a multimodal model marks as its towers, with parameters of its own.

    Models without a mapping do (Kimi-VL, DeepSeek-VL2, LLaVA-OneVision). Phi-3-Vision marks the
    table of its text's tokens, too, on which all answers depend.
    """
    towers = getattr(model, "_tower_model_names", ())
    for name in towers:
        if not isinstance(model.get_submodule(name), VocabParallelEmbedding):
            yield f"{name}."
    if towers:
        yield from (name for name, _ in model.named_parameters(recurse=False))


def _next_to_text(model: Any) -> Iterator[str]:
    """Yield the prefixes of what a multimodal model has next to its language model.

    Mapping and marks leave parts out: the embedder of Gemma 4 Unified, and the projector of a model
    that transformers runs (Aya Vision). A head or table of tokens may be there, and is kept.
    """
    layer, lead = model, ""
    for part in _text_path(model):
        for name, child in layer.named_children():
            if name != part and not _has_tokens(child):
                yield f"{lead}{name}."
        layer, lead = getattr(layer, part), f"{lead}{part}."


def _text_path(model: Any) -> list[str]:
    """Return the path of the language model; empty if only pieces of it are marked."""
    paths = [name.split(".") for name in getattr(model, "_language_model_names", ())] or [[]]
    # What first and last in order have in common, all have.
    pairs = zip(min(paths), max(paths), strict=False)
    path = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    text = model.get_submodule(".".join(path))
    is_whole = any(hasattr(text, get) for get in ("embed_input_ids", "get_input_embeddings"))
    return path if is_whole else []


def _has_tokens(layer: Any) -> bool:
    return any(isinstance(one, VocabParallelEmbedding) for one in layer.modules())


def _is_shape(kind: str, kinds: Sequence[str]) -> bool:
    return kind.endswith(_SHAPE) and kind.removesuffix(_SHAPE) + _PACKED in kinds


def _in_part(model: Any, kind: str, unused: tuple[str, ...]) -> bool:
    return bool(unused) and _in_vllm(model, kind).startswith(unused)


def _prefixes(named: Any) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else tuple(named or ())


def _in_vllm(model: Any, name: str) -> str:
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return name if mapper is None else next(iter(mapper.apply_list([name])), name)
