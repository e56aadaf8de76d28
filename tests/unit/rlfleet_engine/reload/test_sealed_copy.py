"""An engine has one copy of a version in memory, which no process can change."""

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_engine.reload.sealed_copy import (
    CopyLayout,
    SealedCopies,
    ShortFileError,
    StoppedError,
    laid_out,
)

TENSORS = (
    Tensor("a", "U8", (5,), 3, 5),
    Tensor("b", "U8", (0,), 8, 0),
    Tensor("c", "U8", (4,), 8, 4),
)
CONTENT = b"hdrAAAAACCCC"
LAYOUT = laid_out(TENSORS)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(CONTENT)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def copies(folder: Path, key: str = "k") -> SealedCopies:
    return SealedCopies(folder / "shared", key, threading.Event().wait)


def mapped(own: SealedCopies, source: int, layout: CopyLayout = LAYOUT) -> memoryview:
    return own.mapped(0, layout, source, lambda: None)


def is_left(key: str) -> bool:
    """Return whether this process has a copy of this key, open or mapped."""
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return f"rlfleet-{key}-" in Path("/proc/self/maps").read_text() + " ".join(links)


def test_each_tensor_is_aligned_wherever_it_is_in_its_file(tmp_path: Path, source: int) -> None:
    assert [offset % 64 for _, offset in LAYOUT.spots] == [0, 0, 0]
    own = copies(tmp_path)
    data = mapped(own, source)

    found = [bytes(data[offset : offset + one.nbytes]) for one, offset in LAYOUT.spots]

    assert found == [b"AAAAA", b"", b"CCCC"]
    own.close()


def test_no_process_can_change_a_copy(tmp_path: Path, source: int) -> None:
    own = copies(tmp_path)
    mine, (link,) = mapped(own, source), (tmp_path / "shared").glob("rlfleet-*")
    descriptor = os.open(link, os.O_RDWR)

    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"X", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, LAYOUT.nbytes, flags=mmap.MAP_SHARED)
    other = copies(tmp_path)
    theirs = mapped(other, source)
    mine[0:1] = b"X"

    assert bytes(theirs[0:1]) == b"A"
    os.close(descriptor)
    for one in (own, other):
        one.close()


def test_a_second_rank_opens_the_first_one_s_copy(tmp_path: Path, source: int) -> None:
    first, second = copies(tmp_path), copies(tmp_path)
    kept = mapped(first, source)
    empty = os.open("/dev/null", os.O_RDONLY)

    data = second.mapped(0, LAYOUT, empty, lambda: pytest.fail("it makes no copy"))

    assert bytes(data[:5]) == bytes(kept[:5]) == b"AAAAA"
    os.close(empty)
    first.close()
    assert bytes(data[:5]) == b"AAAAA"
    second.close()


def test_memory_is_free_once_no_rank_needs_it(tmp_path: Path, source: int) -> None:
    own = copies(tmp_path, "free")
    data = mapped(own, source)
    assert is_left("free")

    own.close()
    part = data[:5]
    del data
    assert (is_left("free"), bytes(part)) == (True, b"AAAAA")
    del part

    assert not is_left("free")
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["lock"]


@pytest.mark.parametrize("kind", ["unsealed", "of another version", "too small", "gone"])
def test_what_is_not_a_sealed_copy_of_this_version_is_not_opened(
    tmp_path: Path, source: int, kind: str
) -> None:
    leader = copies(tmp_path, "other")
    mapped(leader, source)
    (theirs,) = (tmp_path / "shared").glob("rlfleet-other-0")
    named = "rlfleet-k-0"
    unsealed = os.memfd_create(named, os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, LAYOUT.nbytes)
    target = {
        "unsealed": f"/proc/self/fd/{unsealed}",
        "of another version": str(theirs.readlink()),
        "too small": str(theirs.readlink()),
        "gone": "/proc/self/fd/999999",
    }[kind]
    wanted = "other" if kind == "too small" else "k"
    if kind != "too small":
        (tmp_path / "shared" / named).symlink_to(target)
    over = threading.Event()
    over.set()
    own = SealedCopies(tmp_path / "shared", wanted, over.wait)
    layout = CopyLayout(LAYOUT.spots, LAYOUT.nbytes + 64)

    with pytest.raises(StoppedError):
        mapped(own, source, layout if kind == "too small" else LAYOUT)

    os.close(unsealed)
    leader.close()


def test_another_rank_takes_over_from_one_that_is_gone(tmp_path: Path, source: int) -> None:
    gone, own = copies(tmp_path, "gone"), copies(tmp_path)
    mapped(gone, source)
    gone.close()

    assert bytes(mapped(own, source)[:5]) == b"AAAAA"
    own.close()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, source: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "rlfleet-k-0").symlink_to("/proc/1/fd/0")
    own = copies(tmp_path)

    assert bytes(mapped(own, source)[:5]) == b"AAAAA"
    own.close()


def test_a_file_that_is_too_short_is_no_copy(tmp_path: Path, source: int) -> None:
    own = copies(tmp_path, "torn")
    layout = laid_out([Tensor("a", "U8", (99,), 3, 99)])

    with pytest.raises(ShortFileError):
        mapped(own, source, layout)

    own.close()
    assert not is_left("torn")
