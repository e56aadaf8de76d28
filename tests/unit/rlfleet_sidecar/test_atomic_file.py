"""A small file on disk: whole or not at all, and lasting if it has to be."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from rlfleet_sidecar.atomic_file import write_whole


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "worker.json"
    write_whole(path, "before")
    (tmp_path / "worker.new").mkdir()

    with pytest.raises(IsADirectoryError):
        write_whole(path, "after")

    assert path.read_text() == "before"


@pytest.mark.parametrize("lasting", [False, True])
def test_what_has_to_last_is_brought_to_the_disk(tmp_path: Path, *, lasting: bool) -> None:
    """A pipe in the place of the draft takes what is written, and cannot be fsynced."""
    draft = tmp_path / "worker.new"
    os.mkfifo(draft)
    reader = os.open(draft, os.O_RDONLY | os.O_NONBLOCK)
    refused = pytest.raises(OSError, match=os.strerror(errno.EINVAL))
    try:
        with refused if lasting else nullcontext():
            write_whole(tmp_path / "worker.json", "some", lasting=lasting)
        assert lasting or os.read(reader, 10) == b"some"
    finally:
        os.close(reader)
