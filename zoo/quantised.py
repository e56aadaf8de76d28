"""Writes a checkpoint's linear layers in fewer bits, as the tools of the field do."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from zoo import forms

_LINEAR = ("proj.weight", "proj_with_mqa.weight")
_LEFT = "modules_to_not_convert"
_OF_DRAFTER = "eh_proj.weight"
"""What joins a drafter's inputs stays as it is, as in DeepSeek's files."""
_GROUP = 32
_BLOCK = 128
_NIBBLES = 8
"""Values of four bits in a word."""
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_FP8_MOST = 448.0

Layer = dict[str, Any]
"""What a layer's ``weight`` of shape (outputs, inputs) becomes, by the name after the layer's."""


def write(at: Path, scheme: str) -> None:
    """Write a checkpoint's linear layers by a scheme of ``SCHEMES``."""
    layer_of, config = SCHEMES[scheme]
    made: forms.Tensors = {}
    for name, tensor in forms.tensors_of(at).items():
        if not name.endswith(_LINEAR) or name.endswith(_OF_DRAFTER):
            made[name] = tensor
            continue
        layer = name.removesuffix("weight")
        made |= {layer + part: one.contiguous() for part, one in layer_of(tensor.float()).items()}
    save_file(made, at / "model.safetensors", forms.META)
    path = at / "config.json"
    told = dict(config)
    if _LEFT in told:
        told[_LEFT] = [name.removesuffix(".weight") for name in made if _is_left(name)]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": told}))


def _is_left(name: str) -> bool:
    # A router, and the head.
    return name.endswith((".gate.weight", "lm_head.weight"))


def _int8(weight: Any) -> Layer:
    scale = weight.abs().amax(1, keepdim=True) / 127
    return {"weight": (weight / scale).round().to(torch.int8), "weight_scale": scale.bfloat16()}


def _fp8(weight: Any) -> Layer:
    scale = weight.abs().amax(1, keepdim=True) / _FP8_MOST
    return {"weight": (weight / scale).to(torch.float8_e4m3fn), "weight_scale": scale.bfloat16()}


def _fp8_blocks(weight: Any) -> Layer:
    """With a scale for each block, as DeepSeek writes it."""
    rows, columns = weight.shape
    whole = torch.nn.functional.pad(weight, (0, -columns % _BLOCK, 0, -rows % _BLOCK))
    blocks = whole.unflatten(1, (-1, _BLOCK)).unflatten(0, (-1, _BLOCK))
    scale = blocks.abs().amax((1, 3), keepdim=True) / _FP8_MOST
    values = (blocks / scale).flatten(2).flatten(0, 1)[:rows, :columns]
    return {"weight": values.to(torch.float8_e4m3fn), "weight_scale_inv": scale[:, 0, :, 0]}


def _int4(weight: Any) -> Layer:
    """In words of eight inputs, as compressed-tensors packs it."""
    values, scale = _nibbles(weight)
    return {
        "weight_packed": _packed(values, range(_NIBBLES)),
        "weight_scale": scale,
        "weight_shape": torch.tensor(weight.shape, dtype=torch.int64),
    }


def _gptq(weight: Any) -> Layer:
    """In words of eight inputs, turned, with an unused zero a group."""
    values, scale = _nibbles(weight)
    inputs, groups = weight.shape[1], scale.shape[1]
    zeros = torch.full((groups, weight.shape[0]), _NIBBLES - 1)
    return {
        "qweight": _packed(values, range(_NIBBLES)).t(),
        "qzeros": _packed(zeros, range(_NIBBLES)),
        "scales": scale.t(),
        "g_idx": torch.arange(inputs, dtype=torch.int32) // _GROUP,
    }


def _awq(weight: Any) -> Layer:
    """In words of eight outputs, turned, in AWQ's order, with a zero of each group."""
    grouped = weight.unflatten(1, (-1, _GROUP))
    low, high = grouped.amin(2, keepdim=True), grouped.amax(2, keepdim=True)
    scale = (high - low) / 15
    zeros = (-low / scale).round().clamp(0, 15)
    values = ((grouped / scale).round() + zeros).clamp(0, 15).flatten(1)
    return {
        "qweight": _packed(values.t().long(), _AWQ_ORDER),
        "qzeros": _packed(zeros.squeeze(2).t().long(), _AWQ_ORDER),
        "scales": scale.squeeze(2).t().bfloat16(),
    }


def _nibbles(weight: Any) -> tuple[Any, Any]:
    """Return values from 0 to 15 around 8, and a scale for each group of inputs."""
    grouped = weight.unflatten(1, (-1, _GROUP))
    scale = grouped.abs().amax(2, keepdim=True) / 7
    values = (grouped / scale).round().clamp(-8, 7) + 8
    return values.flatten(1).long(), scale.squeeze(2).bfloat16()


def _packed(values: Any, order: Any) -> Any:
    """Pack eight of the last dimension into each word, lowest bits first."""
    words = values.unflatten(-1, (-1, _NIBBLES))[..., list(order)]
    shifts = torch.arange(0, 4 * _NIBBLES, 4)
    wide = (words << shifts).sum(-1)
    # The highest bit is a sign.
    return torch.where(wide >= 1 << 31, wide - (1 << 32), wide).to(torch.int32)


def _compressed(form: str, weights: object, inputs: object = None) -> Mapping[str, Any]:
    """Return the configuration of compressed-tensors, which leaves routers and the head alone."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    }


_EIGHT = {"num_bits": 8, "symmetric": True}
_ROW = {"strategy": "channel", "dynamic": False}
_TOKEN = {"strategy": "token", "dynamic": True}
_FOUR = {"num_bits": 4, "symmetric": True, "type": "int", "strategy": "group", "group_size": _GROUP}

SCHEMES: Mapping[str, tuple[Callable[[Any], Layer], Mapping[str, Any]]] = {
    "int8": (
        _int8,
        _compressed(
            "int-quantized", {"type": "int"} | _EIGHT | _ROW, {"type": "int"} | _EIGHT | _TOKEN
        ),
    ),
    "fp8": (
        _fp8,
        _compressed(
            "float-quantized",
            {"type": "float"} | _EIGHT | _ROW,
            {"type": "float"} | _EIGHT | _TOKEN,
        ),
    ),
    "fp8-blocks": (
        _fp8_blocks,
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [_BLOCK, _BLOCK],
            _LEFT: [],
        },
    ),
    "int4": (_int4, _compressed("pack-quantized", _FOUR)),
    "gptq": (
        _gptq,
        {"quant_method": "gptq", "bits": 4, "group_size": _GROUP, "sym": True, "desc_act": False},
    ),
    "awq": (
        _awq,
        {"quant_method": "awq", "bits": 4, "group_size": _GROUP, "zero_point": True},
    ),
}
"""How a layer is written by each scheme, and the configuration that says so."""
