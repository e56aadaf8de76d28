"""Ranges of a far file are read in few requests, and never as other bytes."""

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfleet_contract.engine.safetensors import BadHeaderError, FileStamp
from rlfleet_sidecar.deltas.far_file import HELD, FarFile, joined

RANGES = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(1, 300)).map(lambda one: (one[0], sum(one)))
)


@dataclass
class CountedFile:
    """A file in memory that counts its reads."""

    data: bytes
    reads: list[tuple[int, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    request_bytes: int = 1

    @property
    def stamp(self) -> FileStamp:
        """Its stamp."""
        return FileStamp(name="f", size=len(self.data), mtime_ns=1, inode=1)

    def now(self) -> FileStamp:
        """Return the same."""
        return self.stamp

    def read(self, length: int, offset: int) -> bytes:
        """Return exactly this range."""
        if offset + length > len(self.data):
            raise BadHeaderError("file ends")
        with self.lock:
            self.reads.append((offset, offset + length))
        return self.data[offset : offset + length]

    def fill(self, view: memoryview, offset: int) -> None:
        """Read as many bytes as fit."""
        view[:] = self.read(len(view), offset)


@given(ranges=RANGES, gap=st.integers(0, 100), most=st.integers(1, 1000))
def test_joined_ranges_contain_all_and_little_more(
    ranges: list[tuple[int, int]], gap: int, most: int
) -> None:
    found = joined(ranges, gap, most)

    assert all(any(b <= begin and end <= e for b, e in found) for begin, end in ranges)
    assert len(found) <= len(ranges)
    assert sum(e - b for b, e in found) <= sum(e - b for b, e in ranges) + gap * len(ranges)
    assert all(end - begin <= max(most, 300) for begin, end in found)


@given(ranges=RANGES, asked=RANGES)
def test_what_is_read_ahead_is_the_file_s(
    ranges: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    file = CountedFile(bytes(number % 251 for number in range(6000)))
    far = FarFile(file)
    far.fetch(ranges)

    assert all(far.read(e - b, b) == file.data[b:e] for b, e in (*ranges, *asked))


def test_neighbours_are_one_request_and_are_not_read_again() -> None:
    file = CountedFile(bytes(10_000))
    far = FarFile(file)
    far.fetch([(begin, begin + 18) for begin in range(0, 9000, 100)])
    far.forget()

    assert far.read(18, 300) == bytes(18)
    assert file.reads == [(0, 8918)]


def test_much_is_forgotten_after_the_check() -> None:
    file = CountedFile(bytes(2 * HELD))
    far = FarFile(file)
    far.fetch([(0, HELD + 1)])
    far.forget()

    assert far.read(1, 0) == b"\0"
    assert len(file.reads) == 2


def test_an_error_of_a_request_is_the_reader_s() -> None:
    with pytest.raises(BadHeaderError, match="file ends"):
        FarFile(CountedFile(b"x")).fetch([(0, 1), (0, 99)])
