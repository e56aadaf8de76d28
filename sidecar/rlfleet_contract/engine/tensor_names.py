"""Tensors' names: how long lists of them travel, and which names are one for the engine.

A mixture of experts has a hundred thousand names. They repeat one another, so they are
compressed, thirtyfold. It must stay true that what unpacks is bounded, whatever packed it.
"""

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable

from rlfleet_contract.schema import ContractReply

MAX_BYTES = 64 * 1024 * 1024
"""Of all names together; the largest models have 10 MiB."""


def packed(names: Iterable[str]) -> str:
    """Pack names; none of them may hold a line's end."""
    return b64encode(zlib.compress("\n".join(sorted(names)).encode())).decode()


def unpacked(text: str) -> frozenset[str]:
    """Unpack names; raises ValueError on what was not packed so, or is too long."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(b64decode(text, validate=True), MAX_BYTES)
    except zlib.error as error:
        raise ValueError("not packed names") from error
    if not inflate.eof:
        raise ValueError("packed names are cut, or too long")
    return frozenset(filter(None, data.decode().split("\n")))


class Renames(ContractReply):
    """How a model renames the tensors that it is given, in this order; None is not among them."""

    regex: tuple[tuple[str, str], ...] = ()
    substr: tuple[tuple[str, str], ...] = ()
    prefix: tuple[tuple[str, str], ...] = ()
    suffix: tuple[tuple[str, str], ...] = ()

    def of(self, name: str) -> str:
        """Tell the name by which the model knows a tensor."""
        for pattern, new in self.regex:
            name = re.sub(pattern, new, name)
        for old, new in self.substr:
            name = name.replace(old, new, 1)
        for old, new in self.prefix:
            name = new + name.removeprefix(old) if name.startswith(old) else name
        for old, new in self.suffix:
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name


class Experts(ContractReply):
    """Layers of experts that the engine loads in two forms: fused, and one by one.

    Fused: ``PLACE.gate_up_proj`` and ``PLACE.down_proj``, one tensor each for all experts.
    One by one: ``PLACE.7.gate_proj.weight``, and so on.
    """

    places: tuple[str, ...]
    """The layers, by the names that the model has for them."""
    gate: str
    up: str
    down: str
    """Parts of one expert's names."""
    fused_gate_up: str
    fused_down: str
    transposed: bool = False
    """Whether fused tensors have inputs before outputs."""
