"""How may a version's config.json differ from the base model's? Pure.

The engine never reads a version's config: it computes with the one of its boot. So the
question is whether the trainer used the weights in the same way. All keys count, except
token ids, dtypes, kernels, dropout, losses, names of files, and how a quantising tool was run. Nor
does speech, which vLLM does not compute, nor layers that only propose tokens: which of these a
version must hold is decided by its tensors.

It must stay true that a config which transformers has read and written again does not differ
from the original. Two parsed configs contain every field, and all are compared. Of two raw
files only keys in both are compared, after releases' spellings were unified: the default of
an absent key is known to transformers alone.
"""

import re
from collections.abc import Iterator, Mapping

Config = Mapping[str, object]

_NAMED = 3
_SHOWN = 60
_WITHOUT_PART = frozenset({
    "architectures",
    "auto_map",
    "cache_implementation",
    "chunk_size_feed_forward",
    "dtype",
    "enable_audio_output",
    "enable_talker",
    "ep_size",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "mtp_num_hidden_layers",
    "name_or_path",
    "num_labels",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_auxiliary_logits",
    "output_hidden_states",
    "output_past",
    "output_router_logits",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attn",
})  # fmt: skip
_TOKENS = ("bos", "eos", "pad", "sep", "cls", "unk", "decoder_start", "forced_bos", "forced_eos")
_TRAINING = ("dropout", "pdrop", "layerdrop", "initializer", "aux_loss", "z_loss", "loss_coef")
_QUANTIZATION = "quantization_config"
_PART = re.compile(rf".*{_QUANTIZATION}\..*(in|out)put_activations(?=\.)")
"""What a scheme does to activations, which no tensor may show."""
_TOOL = frozenset({
    "amp",
    "autoround_version",
    "batch_size",
    "cache_block_outputs",
    "damp_percent",
    "dataset",
    "enable_minmax_tuning",
    "enable_norm_bias_tuning",
    "enable_quanted_input",
    "global_compression_ratio",
    "gradient_accumulate_steps",
    "iters",
    "low_gpu_mem_usage",
    "lr",
    "meta",
    "minmax_lr",
    "model_name_or_path",
    "model_seqlen",
    "nsamples",
    "observer",
    "observer_kwargs",
    "quantization_status",
    "seqlen",
    "static_groups",
    "tokenizer",
    "true_sequential",
})  # fmt: skip
"""How the weights were found and by which release, as LLM Compressor, GPTQModel and AutoRound
record it: GPTQModel writes a directory of each run."""
_LEFT_PLAIN = frozenset({
    "exclude",
    "exclude_modules",
    "ignore",
    "ignored_layers",
    "llm_int8_skip_modules",
    "modules_to_not_convert",
})  # fmt: skip
"""Lists of modules that are not quantised: a version's tensors, compared by name and dtype, say it.
slime writes such a list in another order each time."""
_ROPE = ("rope_theta", "partial_rotary_factor")
"""Keys that older releases have next to the rope's parameters, newer ones inside."""
_ROPE_DEFAULTS: Config = {
    "attention_factor": None,
    "beta_fast": 32,
    "beta_slow": 1,
    "long_mscale": None,
    "mrope_interleaved": False,
    "mscale": 1,
    "mscale_all_dim": 0,
    "short_mscale": None,
    "truncate": True,
}
"""What vLLM takes for a key that a rope lacks; transformers fills in none of them."""
_NULLS = frozenset({"attention_factor", "long_mscale", "short_mscale", "sliding_window"})
"""Keys whose null has a meaning of its own, which no default of a release replaces."""
_ROPE_TYPES = {"mrope": "default", "su": "longrope"}
_WRAPPED = "FSDP"
"""Sharding adds this to a class's name: FSDPQwen3ForCausalLM."""
_KERNELS = "attn_implementation"
"""Also ``_attn_implementation``, and Ovis's ``llm_attn_implementation``."""
_SAVED_AS = {
    "chatglmmodel": "chatglmforconditionalgeneration",
    "qwen25omnimodel": "qwen25omniforconditionalgeneration",
}
"""Classes that the Hub's files name otherwise than a trainer saves them; vLLM knows both names.

Others differ in case or underscores: PhiMoEForCausalLM and PhimoeForCausalLM."""


def are_one(model: Config, found: Config) -> bool:
    """Return whether all keys that count are equal, without unifying spellings."""
    return dict(_leaves(model)) == dict(_leaves(found)) and _classes_differ(model, found) is None


def differences(model: Config, found: Config, *, parsed: bool = False) -> str | None:
    """Return the first keys that differ, with both values, or None."""
    ours, theirs = dict(_normal(model, parsed=parsed)), dict(_normal(found, parsed=parsed))
    wrong = [
        f"{key} is {_shown(theirs[key])}, expected {_shown(ours[key])}"
        for key in sorted(ours.keys() & theirs.keys())
        if ours[key] != theirs[key]
    ]
    wrong += [f"{key} is null, expected fields" for key in _nulls(theirs, ours)]
    wrong += [f"{key} is given, expected null" for key in _nulls(ours, theirs)]
    classes = [one] if (one := _classes_differ(model, found)) else []
    return "; ".join(classes + wrong[:_NAMED]) or None


def _nulls(one: Config, other: Config) -> Iterator[str]:
    """Yield the parts of a quantisation that one config lacks and that have fields in the other.

    FP8 weights have the same tensors, whether activations are quantised or not. A part that is
    absent is null: ModelOpt leaves it out, compressed-tensors writes null.
    """
    for key, value in one.items():
        if value is None and _QUANTIZATION in key and any(k.startswith(f"{key}.") for k in other):
            yield key
    yield from sorted(key for key in _parts(other) if _is_left_out(key, one))


def _parts(config: Config) -> set[str]:
    return {found[0] for found in map(_PART.match, config) if found}


def _is_left_out(key: str, config: Config) -> bool:
    """Return whether a config has the group of a key, and neither the key nor fields of it."""
    group = key.rpartition(".")[0]
    is_there = any(other == key or other.startswith(f"{key}.") for other in config)
    return not is_there and any(other.startswith(f"{group}.") for other in config)


def code_objection(model: Config, found: Config) -> str | None:
    """Return why a config with ``auto_map`` is rejected, or None.

    One that equals the base model's was copied from it. Such code is never run.
    """
    if not names_code(found) or _code(found) == _code(model):
        return None
    return "auto_map names code, which is never run; remove auto_map"


def names_code(config: Config) -> bool:
    """Return whether a config names code of its own, which lies next to it as modules."""
    return "auto_map" in config


def _code(config: Config) -> object:
    """Return the code that a config names, without the repository that transformers prepends."""
    named = config.get("auto_map")
    if not isinstance(named, dict):
        return named
    return {key: str(value).rpartition("--")[2] for key, value in named.items()}


def _classes_differ(model: Config, found: Config) -> str | None:
    ours, theirs = (_classes(one) for one in (model, found))
    if not ours or not theirs or [*map(_known, ours)] == [*map(_known, theirs)]:
        return None
    return f"architectures is {_shown(theirs)}, expected {_shown(ours)}"


def _classes(config: Config) -> list[str]:
    named = config.get("architectures")
    found = [str(one) for one in named] if isinstance(named, list) else []
    return [one.removeprefix(_WRAPPED) for one in found]


def _known(name: str) -> str:
    """Return a class's name as it is compared."""
    plain = name.lower().replace("_", "")
    return _SAVED_AS.get(plain, plain)


def _normal(config: Config, *, parsed: bool) -> Iterator[tuple[str, object]]:
    """Yield each nested key that counts with its value, in one spelling."""
    config = _one_spelling(config)
    is_stretched = any(_is_stretched(key, value) for key, value in _leaves(config))
    for key, value in _leaves(config):
        last = key.rpartition(".")[2]
        if last == "max_position_embeddings" and not is_stretched:
            continue
        is_default = value is None and last not in _NULLS and _QUANTIZATION not in key
        if not parsed and (is_default or _is_part(key)):
            continue
        yield key, value


def _is_stretched(key: str, value: object) -> bool:
    """Return whether the number of positions changes the rope, so that it counts."""
    return key.endswith("rope_type") and value != "default"


def _is_part(key: str) -> bool:
    """Return whether this is the type of a nested config, which releases name differently."""
    return key.endswith(".model_type")


def _one_spelling(config: Config) -> dict[str, object]:
    made: dict[str, object] = {
        key: _one_spelling(value) if _is_nested(key, value) else value  # type: ignore[arg-type]
        for key, value in config.items()
    }
    if made.get("use_sliding_window") is False:
        made.pop("sliding_window", None)
        made.pop("max_window_layers", None)
    return _with_rope(made)


def _is_nested(key: str, value: object) -> bool:
    return isinstance(value, dict) and not key.startswith("rope_")


def _with_rope(config: dict[str, object]) -> dict[str, object]:
    """Return the config with all of the rope's keys in one place."""
    stated = config.pop("rope_parameters", None) or config.pop("rope_scaling", None) or {}
    config.pop("rope_scaling", None)
    outside = {key: config.pop(key) for key in _ROPE if key in config}
    if not isinstance(stated, dict) or not (stated or outside):
        return config
    if any(isinstance(value, dict) for value in stated.values()):
        # One for each kind of layer.
        return config | {"rope_parameters": {k: _rope(v) for k, v in stated.items()}}
    return config | {"rope_parameters": _rope(outside | stated)}


def _rope(stated: object) -> object:
    if not isinstance(stated, dict):
        return stated
    kind = stated.get("rope_type") or stated.get("type") or "default"
    rest = {
        key: value
        for key, value in stated.items()
        if key != "type" and (value is not None or key not in _ROPE_DEFAULTS)
    }
    return {**_ROPE_DEFAULTS, **rest, "rope_type": _ROPE_TYPES.get(kind, kind)}


def _leaves(config: Config, path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in config.items():
        if _has_no_part(key) or (_QUANTIZATION in path and _is_of_tool(key, value)):
            continue
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _has_no_part(key: str) -> bool:
    return (
        key in _WITHOUT_PART
        or key.startswith("_")
        or _KERNELS in key
        or key.removesuffix("_token_id") in _TOKENS
        or any(part in key for part in _TRAINING)
    )


def _is_of_tool(key: str, value: object) -> bool:
    """Return whether a key of a quantisation has no part in how the weights are read.

    AWQ calls its layout ``version`` ("gemm"), others the tool's release ("0.19.0").
    """
    return key in _TOOL or key in _LEFT_PLAIN or (key == "version" and str(value)[:1].isdigit())


def _shown(value: object) -> str:
    return f"{value!r:.{_SHOWN}}"
