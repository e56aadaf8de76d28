"""How long lists of tensors' names travel: a mixture of experts has a hundred thousand.

Names repeat one another, so they are compressed, thirtyfold. It must stay true that what
unpacks is bounded, whoever packed it.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable

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
