"""Routed experts as RL clients read them; vLLM tells them as a NumPy file in base64.

Clients cut the base64 out of the raw reply, so ``data`` comes first.
"""

import ast
from base64 import b64decode, b64encode
from math import prod
from typing import Any

from rlfleet_engine.rewrite.rewrite import IncompleteReplyError

_MAGIC = b"\x93NUMPY"
_LENGTH_AT = 8
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
"""By the file's version: how long the header's length is."""
_TYPES = {"|u1": ("uint8", 1), "<u2": ("uint16", 2), "<i4": ("int32", 4)}


def experts_of(encoded: str | None, start: int = 0) -> dict[str, Any] | None:
    """Tell data, shape (tokens, layers, experts of a token) and type; None of a dense model.

    ``start`` is the token at which they begin. Raises IncompleteReplyError.
    """
    if encoded is None:
        return None
    try:
        header, data = _opened(b64decode(encoded, validate=True))
        name, size = _TYPES[header["descr"]]
        shape = [int(one) for one in header["shape"]]
        is_as_told = not header["fortran_order"] and prod(shape) * size == len(data)
    except (ValueError, KeyError, TypeError, SyntaxError, IndexError) as error:
        raise IncompleteReplyError("the engine gave routed experts that cannot be read") from error
    if not is_as_told:
        raise IncompleteReplyError("the engine gave routed experts of another size than they tell")
    told = {"data": b64encode(data).decode(), "shape": shape, "dtype": name}
    return told | ({"start": start} if start else {})


def _opened(file: bytes) -> tuple[dict[str, Any], bytes]:
    if not file.startswith(_MAGIC):
        raise ValueError("no NumPy file")
    begin = _LENGTH_AT + _LENGTH_BYTES[file[len(_MAGIC)]]
    end = begin + int.from_bytes(file[_LENGTH_AT:begin], "little")
    return ast.literal_eval(file[begin:end].decode("latin-1").strip()), file[end:]
