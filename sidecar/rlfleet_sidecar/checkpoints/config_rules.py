"""In what may a version's config.json differ from the boot model's? Pure.

The engine never reads a version's config: it computes with the one that it booted with. So
what matters is whether the trainer used the weights as the engine will. Each key counts but
those that have no part in that: token ids, dtypes, dropout, losses, names of files.

It must stay true that a config which transformers has read and written again does not differ
from what it read. Two configs that were parsed state every field, and all are compared.
Two raw files are compared after releases' spellings were made one, key by key, where both
state it: what one leaves out is a default that only transformers knows.
"""

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
    "ep_size",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "name_or_path",
    "num_labels",
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
})  # fmt: skip
_TOKENS = ("bos", "eos", "pad", "sep", "cls", "unk", "decoder_start", "forced_bos", "forced_eos")
_TRAINING = ("dropout", "pdrop", "layerdrop", "initializer", "aux_loss", "z_loss", "loss_coef")
_ROPE = ("rope_theta", "partial_rotary_factor")
"""What older releases state beside the rope's parameters, and newer ones among them."""
_ROPE_TYPES = {"mrope": "default", "su": "longrope"}
_WRAPPED = "FSDP"
"""Sharding wraps a model's class and so renames it: FSDPQwen3ForCausalLM."""


def are_one(model: Config, found: Config) -> bool:
    """Tell whether the two state the same, letter by letter, where it matters."""
    return dict(_leaves(model)) == dict(_leaves(found)) and _classes_differ(model, found) is None


def differences(model: Config, found: Config, *, parsed: bool = False) -> str | None:
    """Name the first keys that differ, with both values; None if none does."""
    ours, theirs = dict(_normal(model, parsed=parsed)), dict(_normal(found, parsed=parsed))
    wrong = [
        f"{key} is {_shown(theirs[key])} and the boot model's is {_shown(ours[key])}"
        for key in sorted(ours.keys() & theirs.keys())
        if ours[key] != theirs[key]
    ]
    classes = [told] if (told := _classes_differ(model, found)) else []
    return "; ".join(classes + wrong[:_NAMED]) or None


def code_objection(model: Config, found: Config) -> str | None:
    """Tell why a config that names code of its own is refused; None if it is not.

    One that names what the boot model's names was copied from it. No such code is run.
    """
    if "auto_map" not in found or _code(found) == _code(model):
        return None
    return "asks for code of its own (auto_map), which is never run: remove it"


def _code(config: Config) -> object:
    """Tell which code a config names; transformers puts the repository before it."""
    named = config.get("auto_map")
    if not isinstance(named, dict):
        return named
    return {key: str(value).rpartition("--")[2] for key, value in named.items()}


def _classes_differ(model: Config, found: Config) -> str | None:
    ours, theirs = (_classes(one) for one in (model, found))
    if not ours or not theirs or ours == theirs:
        return None
    return f"architectures is {_shown(theirs)} and the boot model's is {_shown(ours)}"


def _classes(config: Config) -> list[str]:
    named = config.get("architectures")
    found = [str(one) for one in named] if isinstance(named, list) else []
    return [one.removeprefix(_WRAPPED) for one in found]


def _normal(config: Config, *, parsed: bool) -> Iterator[tuple[str, object]]:
    """Yield each nested key with its value, in one spelling."""
    config = _one_spelling(config)
    is_stretched = any(_is_stretched(key, value) for key, value in _leaves(config))
    for key, value in _leaves(config):
        last = key.rpartition(".")[2]
        if last == "max_position_embeddings" and not is_stretched:
            continue
        if not parsed and ((value is None and last != "sliding_window") or _is_part(key)):
            continue
        yield key, value


def _is_stretched(key: str, value: object) -> bool:
    """Tell whether the number of positions has a part in how positions are turned."""
    return key.endswith("rope_type") and value != "default"


def _is_part(key: str) -> bool:
    """Tell whether this is the type of a nested config, which releases name differently."""
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
    """Put what is stated of the rope in one place."""
    stated = config.pop("rope_parameters", None) or config.pop("rope_scaling", None) or {}
    config.pop("rope_scaling", None)
    beside = {key: config.pop(key) for key in _ROPE if key in config}
    if not isinstance(stated, dict) or not (stated or beside):
        return config
    if any(isinstance(value, dict) for value in stated.values()):
        # One for each kind of layer.
        return config | {"rope_parameters": {k: _rope(v) for k, v in stated.items()}}
    return config | {"rope_parameters": _rope(beside | stated)}


def _rope(stated: object) -> object:
    if not isinstance(stated, dict):
        return stated
    kind = stated.get("rope_type") or stated.get("type") or "default"
    rest = {key: value for key, value in stated.items() if key != "type"}
    return rest | {"rope_type": _ROPE_TYPES.get(kind, kind)}


def _leaves(config: Config, path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in config.items():
        if _has_no_part(key):
            continue
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _has_no_part(key: str) -> bool:
    return (
        key in _WITHOUT_PART
        or key.startswith(("_", "output_", "attn_implementation"))
        or key.removesuffix("_token_id") in _TOKENS
        or any(part in key for part in _TRAINING)
    )


def _shown(value: object) -> str:
    return f"{value!r:.{_SHOWN}}"
