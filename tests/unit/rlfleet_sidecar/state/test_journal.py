"""What the journal says when its disk is full or broken."""

import errno
from pathlib import Path

import pytest

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.journal import Journal


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (errno.ENOSPC, "disk or inodes are used up (df, df -i): delete files or images on it"),
        (errno.EDQUOT, "disk or inodes are used up (df, df -i): delete files or images on it"),
        (errno.EIO, "check the node's disk (dmesg), then delete the pod"),
        (errno.EROFS, "check the node's disk (dmesg), then delete the pod"),
    ],
)
def test_a_failed_write_names_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, action: str
) -> None:
    journal = Journal(tmp_path)

    def fails(*_arguments: object, **_options: object) -> None:
        raise OSError(number, "as the kernel says")

    monkeypatch.setattr("rlfleet_sidecar.state.journal_log.write_whole", fails)

    with pytest.raises(SidecarError, match="as the kernel says") as caught:
        journal.trainer_begins(Problem.of(Code.INTERNAL, "any", version="v1", operation="r-1"))

    assert action in caught.value.message
