"""The lock file of the worker's image."""

import re

import pytest

from dev.cache import REPOSITORY
from dev.python.lock import entries_of

LOCKED = (
    "a==1 \\\n    --hash=sha256:1\nb-c==2 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\nd==4\n"
)


def test_entries_keep_their_hashes() -> None:
    assert entries_of(LOCKED, ["b-c"]) == [
        "b-c==2 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
    ]
    with pytest.raises(KeyError):
        entries_of(LOCKED, ["b"])


def test_the_worker_s_image_gets_what_the_tests_ran_with() -> None:
    locks = REPOSITORY / "requirements"
    worker = (locks / "worker.lock").read_text()
    names = re.findall(r"(?m)^([a-z0-9-]+)==", worker)

    assert names
    assert worker == "".join(entries_of((locks / "dev.lock").read_text(), names))
