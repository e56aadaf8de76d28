"""Does an adapter match the base model? Pure, over its configuration and headers.

vLLM silently accepts some adapters that do not: with a layer that the model lacks, or with
matrices of other shapes. So it must stay true that an accepted adapter names only modules of
the base model, with two matrices for each, of the configured rank and the module's shape.
vLLM itself checks the largest rank (--max-lora-rank) and the modules that it can wrap.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlfleet_contract.engine.safetensors import Tensor

CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."
"""PEFT writes it, some trainers omit it, and vLLM accepts both."""
_PART = re.compile(
    r"(?P<module>.+?)(\.base_layer)?\.(?P<which>lora_[AB](?=\.weight)|lora_embedding_[AB])(\.weight)?"
)
"""PEFT calls one of two matrices of fused experts ``base_layer``."""
_INNER = ".base_layer"
_BASE_WEIGHT = re.compile(r"(^|\.)(embed\w*|wte|lm_head)(\.base_layer)?\.weight$")
"""What save_pretrained adds where an adapter targets the embeddings or the head."""
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_EXPERTS = re.compile(r"(?P<path>.+\.experts)\.((?P<number>\d+)\.|\w*gate_up_proj)")
"""A tensor of one expert, or of all in one."""
_LAYERS = "layers."
_FLOATS = frozenset({"BF16", "F16", "F32"})
_MATRIX = 2
_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica"})
"""Initializations that keep the base model's weights; the others change them in training."""
_MLX = (
    "lora_parameters: is of MLX's own layout, expected PEFT's; fuse the adapter (mlx_lm.fuse) and"
    " load the model that it writes"
)
_WITHOUT = "train without it"
_MERGED = f"{_WITHOUT}, or merge the adapter and load the model as a version"
_UNSERVED = {
    "use_dora": _MERGED,
    "lora_bias": _WITHOUT,
    "modules_to_save": _MERGED,
    "trainable_token_indices": _MERGED,
    "alora_invocation_tokens": _WITHOUT,
    "layer_replication": _WITHOUT,
    "use_bdlora": _WITHOUT,
    "use_qalora": _WITHOUT,
    "kasa_config": _WITHOUT,
    "monteclora_config": _WITHOUT,
    "velora_config": _WITHOUT,
    "arrow_config": _WITHOUT,
}
"""The fields of what vLLM does not serve, and the way out: some of it a merged model keeps."""


def config_objection(config: Mapping[str, Any]) -> str | None:
    """Return the first defect of adapter_config.json, or None."""
    return _MLX if "lora_parameters" in config else next(_config_objections(config), None)


def scaling_objection(config: Mapping[str, Any]) -> str | None:
    """Return why an engine that scales all modules alike does not serve an adapter, or None.

    So does vLLM before 0.32: by ``r`` and ``lora_alpha``, whatever the patterns say.
    """
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    own = _scale(config, config["r"], config["lora_alpha"])
    is_alike = ranks.keys() == alphas.keys() and all(
        math.isclose(_scale(config, rank, alphas[key]), own) for key, rank in ranks.items()
    )
    if is_alike:
        return None
    return (
        "rank_pattern and alpha_pattern: vLLM before 0.32 would scale these modules by r and"
        " lora_alpha; train with one scaling, or use a later vLLM"
    )


def _scale(config: Mapping[str, Any], rank: int, alpha: float) -> float:
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def objection(
    config: Mapping[str, Any], found: Mapping[str, Tensor], model: Mapping[str, Tensor]
) -> str | None:
    """Return the first defect of an adapter's tensors, or None."""
    return next(_objections(config, found, _Modules(model)), None)


def _config_objections(config: Mapping[str, Any]) -> Iterator[str]:
    kind, rank, alpha = config.get("peft_type", "LORA"), config.get("r"), config.get("lora_alpha")
    targets = config.get("target_modules")
    if kind != "LORA":
        yield f"peft_type: got {kind!r:.40}, expected LORA"
    if not _is_rank(rank):
        yield f"r: got {rank!r:.40}, expected an integer >= 1"
    if not _is_alpha(alpha):
        yield f"lora_alpha: got {alpha!r:.40}, expected a number but 0, which has no effect"
    if not (targets or config.get("target_parameters")) or not isinstance(
        targets or "", str | list
    ):
        yield "target_modules: is empty; name the modules"
    yield from _pattern_objections(config, "rank_pattern", _is_rank, "integers >= 1")
    yield from _pattern_objections(config, "alpha_pattern", _is_alpha, "numbers but 0")
    yield from _unserved(config)


def _pattern_objections(
    config: Mapping[str, Any], field: str, is_value: Callable[[object], bool], values: str
) -> Iterator[str]:
    patterns = config.get(field) or {}
    if not isinstance(patterns, dict) or not all(map(is_value, patterns.values())):
        yield f"{field}: expected {values}"
        return
    for key in patterns:
        if (why := _regex_objection(key)) is not None:
            yield f"{field}: key {key!r:.80} {why}"


def _regex_objection(key: str) -> str | None:
    """Return why PEFT's matching of a key fails or may take hours, here and in vLLM; or None."""
    if _REPEATED_GROUP.search(key):
        return "repeats a group; name the modules without"
    try:
        re.compile(key)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression ({error}); correct it"
    return None


def _unserved(config: Mapping[str, Any]) -> Iterator[str]:
    if config.get("bias", "none") != "none":
        yield "bias: not supported by vLLM; train without biases"
    for name, way_out in _UNSERVED.items():
        if config.get(name):
            yield f"{name}: not supported by vLLM; {way_out}"
    init = config.get("init_lora_weights", True)
    if isinstance(init, str) and init.lower() not in _INITS:
        yield (
            f"init_lora_weights: {init:.40} changes the base model; save the adapter with PEFT's"
            " path_initial_model_for_weight_conversion, or use another one"
        )


def _is_alpha(value: object) -> bool:
    # verl's model_merger writes 0 where it does not know the adapter's.
    return isinstance(value, int | float) and math.isfinite(value) and value != 0


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class _Modules:
    """The base model's modules, by name and by place among the layers."""

    def __init__(self, model: Mapping[str, Tensor]) -> None:
        self._model = model
        self._paths: set[str] = set()
        self._places: dict[str, set[str]] = {}
        self._experts: dict[str, int] = {}
        for name, tensor in model.items():
            self._count(name, tensor)
            path = name
            while "." in path:
                path = path.rpartition(".")[0]
                self._paths.add(path)
                # The prefix before the layers differs between releases of transformers.
                self._places.setdefault(_place(path), set()).add(path)

    def _count(self, name: str, tensor: Tensor) -> None:
        if (found := _EXPERTS.match(name)) is not None:
            number = int(found["number"]) + 1 if found["number"] else (*tensor.shape, 0)[0]
            self._experts[found["path"]] = max(number, self._experts.get(found["path"], 0))

    def experts(self, module: str) -> int | None:
        """Return the number of experts of a module that is all of a layer's; None of others."""
        meant = self.find(module)
        return self._experts.get(next(iter(meant))) if len(meant) == 1 else None

    def find(self, module: str) -> set[str]:
        """Return the modules that a name can refer to."""
        return {module} if module in self._paths else self._places.get(_place(module), set())

    def shape(self, module: str) -> tuple[int, ...] | None:
        """Return its weight's shape; None if it is ambiguous, or not a plain matrix."""
        meant = self.find(module)
        weight = self._model.get(f"{next(iter(meant))}.weight") if len(meant) == 1 else None
        is_plain = weight is not None and weight.dtype in _FLOATS and len(weight.shape) == _MATRIX
        return weight.shape if weight is not None and is_plain else None


def _place(module: str) -> str:
    return module[module.find(_LAYERS) :] if _LAYERS in module else module


def _objections(
    config: Mapping[str, Any], found: Mapping[str, Tensor], modules: _Modules
) -> Iterator[str]:
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in sorted(found.items()):
        match = _PART.fullmatch(name.removeprefix(_PREFIX))
        if match is None:
            yield f"{name} is not a module's lora_A or lora_B{_way_out(name)}"
        elif tensor.dtype not in _FLOATS or len(tensor.shape) != _MATRIX:
            yield f"{name} is {tensor.dtype} {tensor.shape}, expected a floating-point matrix"
        else:
            base = match[2] or ""
            pairs.setdefault(match["module"] + base, {})[match["which"]] = tensor
    if not pairs:
        yield "contains no tensor"
    for module, pair in pairs.items():
        yield from _misfits(module.removesuffix(_INNER), pair, config, modules)
        yield from _of_experts(module, pairs, config, modules)


def _way_out(name: str) -> str:
    """Return how to save without a base model's weight, which PEFT adds to some adapters."""
    is_base = _BASE_WEIGHT.search(name) is not None
    return "; save the adapter with save_embedding_layers=False" if is_base else ""


def _misfits(
    module: str, pair: Mapping[str, Tensor], config: Mapping[str, Any], modules: _Modules
) -> Iterator[str]:
    if set(pair) not in ({"lora_A", "lora_B"}, {"lora_embedding_A", "lora_embedding_B"}):
        yield f"{module} has {' and '.join(pair)}, expected lora_A and lora_B"
        return
    if not modules.find(module):
        yield f"{module} is not a module of the base model"
        return
    yield from _of_two_alphas(module, config)
    shape = modules.shape(module)
    if shape is None:
        return
    rank = _rank_of(module, config)
    (_, outer), (_, inner) = sorted((name[-1] == "A", pair[name].shape) for name in pair)
    if inner[0] != rank or outer[1] != rank:
        yield f"{module} has rank {inner[0]} and {outer[1]}, expected {rank} by {CONFIG}"
    expected = shape[::-1] if "lora_embedding_A" in pair else shape
    if (outer[0], inner[1]) != expected:
        yield f"{module} is for shape {(outer[0], inner[1])}, expected {expected}"


def _of_experts(
    module: str,
    pairs: Mapping[str, Mapping[str, Tensor]],
    config: Mapping[str, Any],
    modules: _Modules,
) -> Iterator[str]:
    """Yield what is wrong with matrices of all experts, which vLLM splits by their number."""
    path = module.removesuffix(_INNER)
    number = modules.experts(path)
    if number is None:
        return
    if {path, path + _INNER} - pairs.keys():
        yield (
            f"{path} has one of its two matrices; name gate_up_proj and down_proj in"
            " target_parameters"
        )
        return
    part = "gate_up_proj" if module.endswith(_INNER) else "down_proj"
    rank = _rank_of(f"{path}.{part}", config)
    found = [tensor.shape[name[-1] == "B"] for name, tensor in sorted(pairs[module].items())]
    if found != [number * rank] * 2:
        yield (
            f"{module} has rank {' and '.join(map(str, found))}, expected {number * rank}:"
            f" {number} experts of rank {rank} by {CONFIG}"
        )


def _of_two_alphas(module: str, config: Mapping[str, Any]) -> Iterator[str]:
    alphas = _matches(config, "alpha_pattern", module)
    if len(set(alphas.values())) > 1:
        yield (
            f"{module} has several values in alpha_pattern, by {' and '.join(list(alphas)[:2])}:"
            " PEFT sorts keys as it saves, so the first need not be the trained one; let one key"
            " match each module"
        )


def _rank_of(module: str, config: Mapping[str, Any]) -> int:
    """Return a module's rank as PEFT and vLLM do: by the first key that its name ends with."""
    return int(next(iter(_matches(config, "rank_pattern", module).values()), config["r"]))


def _matches(config: Mapping[str, Any], field: str, module: str) -> dict[str, float]:
    """Return the keys of a pattern that a module's name ends with, and their values."""
    patterns: dict[str, float] = config.get(field) or {}
    return {key: v for key, v in patterns.items() if re.match(rf"(.*\.)?({key})$", module)}
