"""Tensors' names: how long lists of them are sent, and which names an engine treats as one.

A mixture of experts has a hundred thousand names. They repeat one another, so they are
compressed, thirtyfold. It must stay true that the unpacked size is bounded for any input.
"""

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable

from rlfleet_contract.schema import ContractReply

MAX_BYTES = 64 * 1024 * 1024
"""Of all names together; the largest models have 10 MiB."""
DRAFTER = re.compile(r"(^|\.)mtp[._]|(^|[._])nextn")
"""Names of layers that propose tokens, in any architecture."""


def packed(names: Iterable[str]) -> str:
    """Return names as one string; no name may contain a newline."""
    return b64encode(zlib.compress("\n".join(sorted(names)).encode())).decode()


def unpacked(text: str) -> frozenset[str]:
    """Return the names in a string of ``packed``; raises ValueError for any other string."""
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(b64decode(text, validate=True), MAX_BYTES)
    except zlib.error as error:
        raise ValueError("names not compressed by zlib") from error
    if not inflate.eof:
        raise ValueError(f"names incomplete, or longer than {MAX_BYTES} bytes")
    return frozenset(filter(None, data.decode().split("\n")))


class Renames(ContractReply):
    """How a model renames the tensors of a checkpoint, in this order."""

    regex: tuple[tuple[str, str], ...] = ()
    substr: tuple[tuple[str, str], ...] = ()
    prefix: tuple[tuple[str, str], ...] = ()
    suffix: tuple[tuple[str, str], ...] = ()

    def of(self, name: str) -> str:
        """Return the model's name for a tensor."""
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
    """Layers of experts that the engine loads in two forms: fused, or separate.

    Fused: ``PLACE.gate_up_proj`` and ``PLACE.down_proj``, one tensor each for all experts.
    Separate: ``PLACE.7.gate_proj.weight``, and so on.
    """

    places: tuple[str, ...]
    """The layers, by the model's names."""
    gate: str
    up: str
    down: str
    """Part of an expert's names."""
    fused_gate_up: str
    fused_down: str
    transposed: bool = False
    """Whether fused tensors have the input dimension before the output dimension."""
