"""The digest of a tensor in memory, for processors and in the form that a GPU computes too. Pure.

It is a sum of 64-bit words, each times its own odd factor, modulo 2**64. The sum is exact in any
order, so CPU and GPU agree, and one changed word always shows. It detects faults of an engine,
not an attack on its memory.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

WORD_BYTES = 8
BLOCK_WORDS = 1 << 19
"""Words per row of factors: 4 MiB, which fit into a processor's cache."""
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


@cache
def factors() -> Any:
    """Return the odd factors of a block's words, as signed integers."""
    places = np.arange(1, BLOCK_WORDS + 1, dtype=np.uint64) * _MIXER
    mixed = places.view(np.int64)
    return (mixed ^ (mixed >> 29)) | 1


def combined(sums: Iterable[int], rest: bytes) -> int:
    """Return the digest for the sums of all blocks in order, and the bytes after the last word."""
    total = int.from_bytes(rest, "little")
    for number in sums:
        total = (total * (2 * BLOCK_WORDS + 1) + number) & _MASK
    return total


def word_sum(data: Any, before_each: Callable[[], object] = lambda: None) -> int:
    """Return the digest of bytes: a buffer that begins at a multiple of a word's size.

    ``before_each`` is called before each block; what it raises ends the sum.
    """
    flat = np.frombuffer(data, dtype=np.uint8)
    whole = flat.size // WORD_BYTES
    words, own = flat[: whole * WORD_BYTES].view(np.int64), factors()
    # The last block has less than all words, perhaps none.
    blocks = range(0, whole // BLOCK_WORDS * BLOCK_WORDS + 1, BLOCK_WORDS)

    def sum_of(begin: int) -> int:
        before_each()
        part = words[begin : begin + BLOCK_WORDS]
        # One pass without a temporary; faster than a dot product of either library.
        return int(np.einsum("i,i->", part, own[: part.size]))

    return combined(map(sum_of, blocks), bytes(flat[whole * WORD_BYTES :]))
