"""The sum sees each word and each byte, and is the one that earlier releases computed."""

import numpy as np
import pytest

from rlfleet_engine.reload.word_sum import BLOCK_WORDS, WORD_BYTES, word_sum

BLOCK = BLOCK_WORDS * WORD_BYTES


def random_bytes(nbytes: int) -> bytes:
    return np.random.default_rng(nbytes).bytes(nbytes)


def plainly(data: bytes) -> int:
    """Return the sum by its definition, in Python's own integers."""
    whole = len(data) // WORD_BYTES
    words = np.frombuffer(data[: whole * WORD_BYTES], dtype=np.uint64).tolist()
    total = int.from_bytes(data[whole * WORD_BYTES :], "little")
    for begin in range(0, whole // BLOCK_WORDS * BLOCK_WORDS + 1, BLOCK_WORDS):
        sums = 0
        for place, word in enumerate(words[begin : begin + BLOCK_WORDS], 1):
            mixed = place * 0x9E3779B97F4A7C15 % (1 << 64)
            signed = mixed - (1 << 64) if mixed >> 63 else mixed
            sums += word * ((signed ^ (signed >> 29)) | 1)
        total = (total * (2 * BLOCK_WORDS + 1) + sums) % (1 << 64)
    return total


@pytest.mark.parametrize("nbytes", [0, 1, 8, 13, 4096, BLOCK, BLOCK + 11])
def test_the_sum_is_its_definition_s(nbytes: int) -> None:
    data = random_bytes(nbytes)

    assert word_sum(data) == plainly(data)


@pytest.mark.parametrize("place", [0, 5, BLOCK - 1, BLOCK, BLOCK + 8, BLOCK + 10])
def test_one_changed_byte_shows(place: int) -> None:
    data = bytearray(random_bytes(BLOCK + 11))
    before = word_sum(data)
    data[place] ^= 1

    assert word_sum(data) != before


def test_words_that_change_places_show() -> None:
    data = random_bytes(64)

    assert word_sum(data) != word_sum(data[8:16] + data[:8] + data[16:])


def test_a_sum_ends_before_its_next_block_if_asked_to() -> None:
    begun = 0

    def before_each() -> None:
        nonlocal begun
        begun += 1
        if begun == 2:
            raise InterruptedError

    data = bytes(3 * BLOCK)
    with pytest.raises(InterruptedError):
        word_sum(data, before_each)

    assert begun == 2
