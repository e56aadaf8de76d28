"""A range is copied whole, by whatever way the two file systems allow."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlfleet_contract.engine.safetensors import BadHeaderError, FileStamp
from rlfleet_sidecar.checkpoints.safe_paths import OpenFile, stamp_of
from rlfleet_sidecar.staging.range_copy import WAYS, RangeCopy

_DATA = os.urandom(9 * 1024 * 1024 + 17)
_BEGIN = 4096 + 5


class Elsewhere:
    """What is read of a store: no descriptor."""

    stamp = FileStamp(name="x", size=len(_DATA), mtime_ns=0, inode=0)
    request_bytes = 1 << 20

    def now(self) -> FileStamp:
        return self.stamp

    def read(self, length: int, offset: int) -> bytes:
        return _DATA[offset : offset + length]

    def fill(self, view: memoryview, offset: int) -> None:
        view[:] = _DATA[offset : offset + len(view)]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[OpenFile, int]]:
    (tmp_path / "source").write_bytes(_DATA)
    (tmp_path / "target").write_bytes(bytes(len(_DATA)))
    source = os.open(tmp_path / "source", os.O_RDONLY)
    target = os.open(tmp_path / "target", os.O_RDWR)
    yield OpenFile(source, stamp_of("source", os.fstat(source))), target
    os.close(source)
    os.close(target)


def copied(copy: RangeCopy, source: OpenFile | Elsewhere, target: int) -> bytes:
    place = _BEGIN
    while place < len(_DATA):
        place += copy.copy(source, target, place, len(_DATA) - place)
    return os.pread(target, len(_DATA), 0)


@pytest.mark.parametrize("ways", [WAYS[:1], WAYS[1:], ()])
def test_each_way_copies_to_the_same_place(
    ways: tuple[Callable[..., int], ...], files: tuple[OpenFile, int]
) -> None:
    assert copied(RangeCopy(ways), *files) == bytes(_BEGIN) + _DATA[_BEGIN:]


def test_what_has_no_descriptor_is_copied_too(files: tuple[OpenFile, int]) -> None:
    assert copied(RangeCopy(), Elsewhere(), files[1]) == bytes(_BEGIN) + _DATA[_BEGIN:]


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_what_a_file_system_refuses_is_copied_by_the_next_way(
    number: int, files: tuple[OpenFile, int]
) -> None:
    calls = []

    def refused(*_: int) -> int:
        calls.append(number)
        raise OSError(number, "refused")

    assert copied(RangeCopy((refused,)), *files) == bytes(_BEGIN) + _DATA[_BEGIN:]
    assert len(calls) == 1, "a way that was refused is not tried again"


def test_an_answer_of_zero_before_the_end_is_no_end(files: tuple[OpenFile, int]) -> None:
    assert copied(RangeCopy((lambda *_: 0,)), *files) == bytes(_BEGIN) + _DATA[_BEGIN:]


@pytest.mark.parametrize("ways", [WAYS[:1], WAYS[1:], ()])
def test_a_file_s_early_end_is_an_error(
    ways: tuple[Callable[..., int], ...], files: tuple[OpenFile, int]
) -> None:
    source, target = files

    with pytest.raises(BadHeaderError, match=f"file ends after {len(_DATA)} bytes"):
        RangeCopy(ways).copy(source, target, len(_DATA), 1)


def test_a_disk_s_error_is_not_hidden_by_another_way(files: tuple[OpenFile, int]) -> None:
    def broken(*_: int) -> int:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        copied(RangeCopy((broken,)), *files)
