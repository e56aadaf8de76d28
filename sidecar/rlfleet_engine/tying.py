"""Feeds a tensor under each name that its parameter has, where a kernel keeps a copy of its own.

A head that is tied to the embeddings is one parameter with two names, and a version may list
one. On a CPU vLLM packs the head's weights apart, and a reload that does not name it leaves
the packed copy as it was: embeddings of the new version under the head of another.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

_Tensor = TypeVar("_Tensor")


def packed_names(model: Any) -> dict[str, str]:
    """Tell the further names of parameters on a CPU, and the first of each."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        known = first.setdefault(id(parameter), name)
        if known != name and parameter.device.type == "cpu":
            found[name] = known
    return found


def under_all_names(
    tensors: Iterable[tuple[str, _Tensor]], names: Mapping[str, str]
) -> Iterator[tuple[str, _Tensor]]:
    """Feed all, and at the end, under its further names, what did not come under them."""
    came: set[str] = set()
    kept: dict[str, _Tensor] = {}
    for name, tensor in tensors:
        came.add(name)
        if name in names.values():
            kept[name] = tensor
        yield name, tensor
    for further, name in names.items():
        if further not in came and name in kept:
            yield further, kept[name]
