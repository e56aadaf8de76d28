"""Zeroed memory is zeros, in memory already, given away once, and unmapped by clear()."""

from pathlib import Path

import pytest

from rlfleet_engine.reload.mapping import zeroed
from rlfleet_engine.reload.zeroed import ZeroedMemory

MIB = 1 << 20


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def test_a_block_is_zeros_and_is_given_away_once() -> None:
    memory = ZeroedMemory()
    memory.make([MIB, 2 * MIB, MIB], lambda: None)

    blocks = [memory.take(MIB), memory.take(MIB)]

    assert all(block is not None and bytes(block) == bytes(MIB) for block in blocks)
    assert (memory.take(MIB), memory.take(3 * MIB)) == (None, None)
    assert memory.take(2 * MIB) is not None
    assert memory.nbytes == 4 * MIB


def test_its_pages_are_in_memory_before_they_are_written() -> None:
    memory, before = ZeroedMemory(), resident()

    memory.make([64 * MIB], lambda: None)

    assert resident() - before > 60 * MIB
    memory.clear()
    assert resident() - before < 4 * MIB


def test_a_mapping_alone_has_no_pages() -> None:
    before = resident()

    block = zeroed(64 * MIB)

    assert resident() - before < 4 * MIB
    assert len(block) == 64 * MIB


def test_it_stops_when_it_is_no_longer_wanted() -> None:
    memory, left = ZeroedMemory(), [None] * 3

    with pytest.raises(IndexError):
        memory.make([16 * MIB] * 9, left.pop)

    assert memory.nbytes == 3 * 16 * MIB


def test_a_block_in_use_outlives_the_end() -> None:
    memory = ZeroedMemory()
    memory.make([MIB], lambda: None)
    block = memory.take(MIB)
    assert block is not None

    memory.clear()
    block[-1] = 7

    assert (block[-1], memory.nbytes, memory.take(MIB)) == (7, 0, None)


def test_a_block_is_unmapped_by_its_last_holder() -> None:
    memory, before = ZeroedMemory(), resident()
    memory.make([64 * MIB], lambda: None)
    block = memory.take(64 * MIB)
    assert block is not None

    del block

    assert resident() - before > 60 * MIB
    memory.clear()
    assert resident() - before < 4 * MIB
