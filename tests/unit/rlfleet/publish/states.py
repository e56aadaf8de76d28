"""Models as a trainer has them, and the changes of one step."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlfleet.publish.tensors import items
from tests.unit.rlfleet.publish.reader import State

Tensors = dict[str, Any]


def model(seed: int = 0, rows: int = 64) -> Tensors:
    """Return a model of several types and sizes, an empty and a scalar tensor among them."""
    random = np.random.default_rng(seed)
    return {
        "embed.weight": random.standard_normal((rows, 96)).astype(np.float32),
        "layers.0.mlp.weight": random.standard_normal((rows, 33)).astype(np.float16),
        "layers.0.bias": random.integers(0, 255, 7).astype(np.uint8),
        "layers.0.empty": np.zeros((0, 4), np.float32),
        "scale": np.array(1.5, np.float64),
    }


def stepped(before: Mapping[str, Any], seed: int, share: float = 0.05) -> Tensors:
    """Return the model after a step that changed a share of one half of the tensors."""
    random = np.random.default_rng(seed)
    after = {name: tensor.copy() for name, tensor in before.items()}
    for tensor in list(after.values())[seed % 2 :: 2]:
        flat = tensor.reshape(-1)
        picked = random.random(flat.size) < share
        flat[picked] = flat[picked] + 1
    return after


def state(tensors: Mapping[str, Any]) -> State:
    """Return what a reader must find."""
    return {
        name: (item.entry.dtype, item.entry.shape, tensors[name].tobytes())
        for name, item in ((item.name, item) for item in items(tensors))
    }
