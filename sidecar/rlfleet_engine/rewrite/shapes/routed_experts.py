"""Routed experts in the form of RL clients; vLLM returns them as a NumPy file in base64.

``data`` comes first, because clients cut the base64 out of the raw reply.
"""

from base64 import b64decode, b64encode
from io import BytesIO
from typing import Any

import numpy as np

from rlfleet_engine.rewrite.rewrite import IncompleteReplyError

_TYPES = frozenset({"|u1", "<u2", "<i4"})


def experts_of(encoded: str | None, start: int = 0) -> dict[str, Any] | None:
    """Return data, shape (tokens, layers, experts per token) and dtype; None for a dense model.

    ``start`` is the first token with experts. Raises IncompleteReplyError.
    """
    if encoded is None:
        return None
    try:
        file = BytesIO(b64decode(encoded, validate=True))
        found = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, TypeError) as error:
        raise IncompleteReplyError(f"engine returned invalid routed experts: {error}") from error
    if found.dtype.str not in _TYPES or not found.flags.c_contiguous or file.read(1):
        raise IncompleteReplyError(
            f"engine returned routed experts of type {found.dtype.str}, expected"
            f" {', '.join(sorted(_TYPES))} in C order"
        )
    data, shape = b64encode(found.data).decode(), list(found.shape)
    reply = {"data": data, "shape": shape, "dtype": found.dtype.name}
    return reply | ({"start": start} if start else {})
