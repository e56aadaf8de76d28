"""A mapping lasts as long as a view of it, and its end leaves other threads the interpreter."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from rlfleet_engine.reload.mapping import mapped

PAGE = 4096
LARGE = 1 << 29


def filled(name: str, nbytes: int) -> int:
    found = os.memfd_create(name)
    os.ftruncate(found, nbytes)
    os.pwrite(found, b"first", 0)
    os.pwrite(found, b"last", nbytes - 4)
    return found


def is_mapped(name: str) -> bool:
    return name in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("nbytes", [PAGE, (1 << 26) + 1, 3 << 26])
def test_it_lasts_as_long_as_a_view(nbytes: int) -> None:
    descriptor = filled("rlfleet-views", nbytes)

    data = mapped(descriptor, nbytes)
    os.close(descriptor)
    first, last = data[:5], data[-4:]
    del data

    assert (bytes(first), bytes(last)) == (b"first", b"last")
    del first
    assert is_mapped("rlfleet-views")
    del last
    assert not is_mapped("rlfleet-views")


def test_a_write_changes_no_byte_of_the_file() -> None:
    descriptor = filled("rlfleet-own", PAGE)
    data = mapped(descriptor, PAGE)

    data[:5] = b"other"

    assert os.pread(descriptor, 5, 0) == b"first"
    os.close(descriptor)


def test_what_cannot_be_mapped_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        mapped(-1, PAGE)
    assert caught.value.errno == errno.EBADF


def test_other_threads_continue_while_it_ends() -> None:
    """A gigabyte takes as long as 80 tokens of a small model."""
    descriptor = filled("rlfleet-large", LARGE)
    data = mapped(descriptor, LARGE)
    touched = sum(data[::PAGE])
    held, begun = [data], threading.Event()
    del data

    def end() -> None:
        begun.set()
        held.clear()

    thread = threading.Thread(target=end)
    thread.start()
    begun.wait()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0)

    assert touched > 0
    assert turns > LARGE >> 26
    assert not is_mapped("rlfleet-large")
    os.close(descriptor)
