"""Does a checkpoint have the base model's tensors? Pure, over headers and configs.

vLLM boots only if each parameter got a tensor, but reloads with a mere warning if some did not.
So a version must hold each tensor that the boot read (state/required_tensors.py), under the same
name; then it covers the same parameters. It may hold the other tensors of the base model's files,
tables of rotations, which an engine computes, and layers that propose tokens, which it leaves out.
Shapes must be equal. Dtypes may differ only among the three floating types, which vLLM casts
to the serving dtype when it copies: a trainer may keep float32 where the Hub has bfloat16.

A head that is tied to the embeddings is one tensor with two names. The Hub's files list one name,
a trainer's state_dict both; vLLM keeps one storage.
"""

from collections.abc import Iterable, Iterator, Mapping

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_contract.engine.tensor_names import DRAFTER, Renames
from rlfleet_sidecar.checkpoints import fused_experts
from rlfleet_sidecar.state.required_tensors import HEAD, IGNORED, ROTARY, RequiredTensors

_CAST = frozenset({"BF16", "F16", "F32"})
_WANTS_PLAIN = tuple(f", expected {dtype}" for dtype in sorted(_CAST))
_QUANTISED = frozenset({"F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "I32", "U32"})
_WEIGHT_RANKS = frozenset({2, 3})
"""Dimensions of a layer's weight and of its experts', but not of an old mask in U8."""
_EMBEDDINGS = (
    "embed_tokens.weight",
    "tok_embeddings.weight",
    "wte.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "backbone.embeddings.weight",
)
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where the config of a multimodal model has that of its text; others than the first: InternVL,
DeepSeek-OCR, and Qwen Omni, whose text is deeper, next to a talker with a vocabulary of its own."""
_VALUE_HEAD = "v_head."
"""What TRL and LLaMA-Factory add to a model for PPO and rewards."""
_NAMED_DIFFERENCES = 3
_TRANSPOSED = ", transposed"
_PADDED = ", a larger vocabulary"
_CUT = ", a smaller vocabulary"
_UNGATHERED = ", empty: gather the ranks' parameters (ZeRO stage 3) before you save them"
_WAY_OUT = "write the version with the tensor names of the base model's files"
_AS_SAVED = f"{_WAY_OUT}, as transformers' save_pretrained does"
_LAYOUT = f"{_WAY_OUT} and in their layout"
_OTHER_BASE = "or serve a base model with the version's vocabulary and tokenizer"
_TOO_MANY_ROWS = f"leave out the rows that pad the vocabulary, {_OTHER_BASE}"
_TOO_FEW_ROWS = (
    "do not resize the embeddings to the tokenizer, which has fewer tokens than the base model has"
    f" rows, {_OTHER_BASE}"
)
_OTHER_SIZE = (
    "gather the parameters of all ranks before you save them, or serve a base model of this size"
)
_TIED = "save the tied tensor under the name of the embeddings, not of the head"
_UNMERGED = "merge the adapter into the base model's weights, or load it as an adapter"
_VALUE = "remove the value head (value_head.safetensors), which no engine computes with"
_PLAIN = "save the version in BF16, F16 or F32"
_ALIKE = (
    "the base model is quantised and the version is not: quantise it with the same tool, or serve a"
    " bfloat16 base model with engine.args --quantization=fp8"
)
_UNLIKE = (
    "the version is quantised and the base model is not: save its weights before their quantisation"
    " in BF16, F16 or F32, or serve a base model that the same tool quantised"
)
_SCHEME = "quantise the version with the tool and the scheme of the base model"


def differences(
    model: Mapping[str, Tensor], found: Mapping[str, Tensor], needs: RequiredTensors
) -> str | None:
    """Return the first differences of a checkpoint from the base model, or None."""
    if needs.experts is not None:
        model = fused_experts.in_form_of(model, found, needs.experts, needs.renames)
    if needs.renames is not None:
        found = _under_base_names(model, found, needs.renames)
    known = _with_heads(model, found) if needs.tied else model
    missing = sorted(model.keys() - found.keys() - set(needs.optional))
    unknown = _unknown(found, known, needs)
    differing = _differing(known, found)
    wrong = list(differing.values())
    parts = [
        *_other_names(missing, unknown, is_known=needs.boot is not None),
        _first("tensors of another shape or dtype", wrong),
    ]
    why = "; ".join(part for part in parts if part)
    if why and (unlike := _of_bits(model, found)):
        return f"{unlike}; {why}"
    if why and _is_of_other_scheme(model, found, (*missing, *unknown, *differing)):
        return f"{why}; {_SCHEME}"
    is_other_name = _has_tied_head(missing, found, needs)
    as_saved = _SCHEME if _is_quantised(model) else _AS_SAVED
    way_out = _way_out(missing, unknown, wrong, as_saved, is_other_name=is_other_name)
    return "; ".join(filter(None, (why, way_out))) or None


def _differing(known: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> dict[str, str]:
    """Return how each tensor of both differs in shape or dtype, in the order of the names."""
    return {
        name: difference
        for name in sorted(found.keys() & known.keys())
        if (difference := _difference(known[name], found[name]))
    }


def _unknown(
    found: Mapping[str, Tensor], known: Mapping[str, Tensor], needs: RequiredTensors
) -> list[str]:
    further = (name for name in found.keys() - known.keys() if not ROTARY.search(name))
    return sorted(n for n in further if not (needs.omits_drafters and DRAFTER.search(n)))


def _has_tied_head(missing: list[str], found: Mapping[str, Tensor], needs: RequiredTensors) -> bool:
    """Return whether the head is in place of the embeddings, as safetensors writes it."""
    is_embedding = len(missing) == 1 and missing[0].endswith(_EMBEDDINGS)
    return is_embedding and needs.tied and any(map(HEAD.search, found))


def _of_bits(model: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """Return the way out if one of both is quantised, or None."""
    is_quantised = _is_quantised(model)
    if is_quantised == _is_quantised(found):
        return None
    return _ALIKE if is_quantised else _UNLIKE


def _is_quantised(tensors: Mapping[str, Tensor]) -> bool:
    return any(
        tensor.dtype in _QUANTISED and len(tensor.shape) in _WEIGHT_RANKS
        for tensor in tensors.values()
    )


def _is_of_other_scheme(
    model: Mapping[str, Tensor], found: Mapping[str, Tensor], names: Iterable[str]
) -> bool:
    """Return whether the names that differ are all of layers that both have, quantised in one.

    A part of one rank differs in its embeddings or norms too.
    """
    ours, theirs = ({_layer(name) for name in one} for one in (model, found))
    quantised = {
        _layer(name) for one in (model, found) for name in one if _is_quantised({name: one[name]})
    }
    return {_layer(name) for name in names} <= ours & theirs & quantised


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _way_out(
    missing: list[str], unknown: list[str], wrong: list[str], as_saved: str, *, is_other_name: bool
) -> str:
    """Return how to write the version; empty if neither its names nor its layout differ."""
    is_value = bool(unknown) and all(name.startswith(_VALUE_HEAD) for name in unknown)
    ways = (
        (is_other_name, _TIED),
        (any(one.endswith(_TRANSPOSED) for one in wrong), _LAYOUT),
        (_all_end(wrong, _PADDED), _TOO_MANY_ROWS),
        (_all_end(wrong, _CUT), _TOO_FEW_ROWS),
        (any(one.endswith(_WANTS_PLAIN) for one in wrong), _PLAIN),
        (any(".lora_A." in name for name in unknown), _UNMERGED),
        (is_value, _VALUE),
        (bool(missing and unknown), as_saved),
        # Of a missing one alone save_pretrained may be the cause: it leaves drafters' layers out.
        (bool(missing or unknown), _WAY_OUT),
        (_is_of_other_size(wrong), _OTHER_SIZE),
    )
    return next((way for is_so, way in ways if is_so), "")


def _all_end(found: list[str], end: str) -> bool:
    return bool(found) and all(one.endswith(end) for one in found)


def _is_of_other_size(wrong: list[str]) -> bool:
    """Return whether tensors have another shape, of which nothing else is known."""
    return any(" has shape " in one for one in wrong) and not _all_end(wrong, _UNGATHERED)


def _other_names(missing: list[str], unknown: list[str], *, is_known: bool) -> Iterator[str]:
    if (
        missing
        and unknown
        and (why := fused_experts.objection(missing, unknown, is_known=is_known))
    ):
        yield why
        return
    yield _first("missing tensors", missing)
    yield _first("unknown tensors", unknown)


def vocabulary(tensors: Mapping[str, Tensor], config: Mapping[str, object]) -> int | None:
    """Return the size that the config states, else the number of embeddings; None without both."""
    for part in _of_text(config):
        size = part.get("vocab_size")
        if isinstance(size, int) and size > 0:
            return size
    # A default of the model's class, which only transformers knows.
    embeddings = _embeddings(tensors)
    return embeddings.shape[0] if embeddings is not None and embeddings.shape else None


def _of_text(config: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield config
    for name in _TEXT:
        part = config.get(name)
        if isinstance(part, dict):
            yield from _of_text(part)


def _under_base_names(
    model: Mapping[str, Tensor], found: Mapping[str, Tensor], renames: Renames
) -> Mapping[str, Tensor]:
    """Return the tensors by the base model's names, where the engine treats both as one."""
    if found.keys() <= model.keys():
        return found
    ours = {renames.of(name): name for name in model}
    renamed = {
        name if name in model else ours.get(renames.of(name), name): tensor
        for name, tensor in found.items()
    }
    # With two tensors for one parameter, the order of the load would decide.
    is_exact = len(ours) == len(model) and len(renamed) == len(found)
    return renamed if is_exact else found


def _with_heads(model: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the base model's tensors with the version's heads, which are its embeddings."""
    embeddings = _embeddings(model)
    if embeddings is None:
        return model
    return {name: embeddings for name in found if HEAD.search(name)} | dict(model)


def untied(tensors: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """Return the names of a head and of the embeddings; None without both.

    Where the engine ties them, they must have the same bytes. So they must have one dtype.
    """
    embeddings = _embeddings(tensors)
    head = next((one for name, one in tensors.items() if HEAD.search(name)), None)
    if head is None or embeddings is None:
        return None
    return head.name, embeddings.name


def _embeddings(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """Return the model's embeddings, not those of a drafter, which lie in a layer or in ``mtp``."""
    found = (one for name, one in tensors.items() if name.endswith(_EMBEDDINGS))
    by_depth = sorted(found, key=lambda one: one.name.count("."))
    return next((one for one in by_depth if not IGNORED.search(one.name)), None)


def _difference(model: Tensor, found: Tensor) -> str | None:
    if model.shape != found.shape:
        why = _why_misshapen(model, found)
        return f"{found.name} has shape {list(found.shape)}, expected {list(model.shape)}{why}"
    if model.dtype != found.dtype and not {model.dtype, found.dtype} <= _CAST:
        return f"{found.name} has dtype {found.dtype}, expected {model.dtype}"
    return None


def _why_misshapen(model: Tensor, found: Tensor) -> str:
    """Return what a tensor's shape says of how it was saved; empty if nothing."""
    if found.shape == (0,):
        return _UNGATHERED
    if found.shape == _turned(model.shape):
        return _TRANSPOSED
    is_of_tokens = model.name.endswith(_EMBEDDINGS) or HEAD.search(model.name) is not None
    if not is_of_tokens or found.shape[1:] != model.shape[1:]:
        return ""
    return _PADDED if found.shape > model.shape else _CUT


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], *shape[:-3:-1])


def _first(what: str, items: Iterable[str]) -> str:
    named = list(items)
    if not named:
        return ""
    more = ", …" if len(named) > _NAMED_DIFFERENCES else ""
    return f"{len(named)} {what}: {', '.join(named[:_NAMED_DIFFERENCES])}{more}"
