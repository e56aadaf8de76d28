"""A trainer that dies at any call to the file system leaves no version that is not whole."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlfleet.publish import Options, Publisher
from tests import forks
from tests.unit.rlfleet.publish import reader
from tests.unit.rlfleet.publish.states import model, state, stepped

CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
MOST = 200


def dies_at(number: int, work: Callable[[], None]) -> bool:
    """Run work in a process that dies before its so-many-th call; return whether it came so far."""
    left = number

    def hook(event: str, _: tuple[Any, ...]) -> None:
        nonlocal left
        if event in CALLS:
            left -= 1
            if left < 0:
                os._exit(forks.DEATH)

    return forks.dies(work, lambda: sys.addaudithook(hook))


@pytest.mark.parametrize("run", ["", "run-1"])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_crash_at_any_call_leaves_whole_versions_and_the_next_trainer_continues(
    tmp_path: Path, run: str, *, full: bool, is_cleaned: bool
) -> None:
    """Also if nothing is left of its draft, as in a bucket, and it publishes the same again."""
    first, second = model(rows=4), stepped(model(rows=4), 1)
    third = second if is_cleaned else stepped(model(rows=4), 2)
    outcomes = set()
    for number in range(MOST):
        root = tmp_path / str(number)
        versions = root / "store" / "updates" if run else root / "store"
        options = Options(snapshot=root / "snapshot", run=run)
        with Publisher(root / "store", options) as publisher:
            publisher.publish(first)

        def restarted(root: Path = root, options: Options = options) -> None:
            with Publisher(root / "store", options) as publisher:
                publisher.publish(second, full=full)

        died = dies_at(number, restarted)
        before = {name: index(versions / name) for name in reader.versions(versions)}
        found = reader.newest(versions)
        assert found in (state(first), state(second))
        outcomes.add((died, found == state(second)))
        for draft in versions.glob(".*.partial") if is_cleaned else ():
            shutil.rmtree(draft)

        with Publisher(root / "store", options) as publisher:
            publisher.publish(third)
        assert reader.newest(versions) == state(third)
        assert {name: index(versions / name) for name in before} == before
        assert [path.name for path in versions.glob(".*.partial")] == []
        if not died:
            break

    # It died before and after the version was there, and at last it did not die.
    assert outcomes == {(True, False), (True, True), (False, True)}


def index(folder: Path) -> bytes:
    return (folder / "model.safetensors.index.json").read_bytes()


def test_a_snapshot_that_is_cut_short_is_not_compared_with(tmp_path: Path) -> None:
    options = Options(snapshot=tmp_path / "snapshot")
    with Publisher(tmp_path / "store", options) as publisher:
        publisher.publish(model())
    file = tmp_path / "snapshot" / "tensors.bin"
    os.truncate(file, file.stat().st_size - 1)

    with Publisher(tmp_path / "store", options) as publisher:
        assert publisher.publish(model()).is_full


def test_a_state_that_did_not_fit_its_bytes_does_not_come_back_with_others(tmp_path: Path) -> None:
    """A publish that fails at its end leaves as many bytes as the state names, of new weights."""
    options = Options(snapshot=tmp_path / "snapshot")
    with Publisher(tmp_path / "store", options) as publisher:
        publisher.publish(model())
    file = tmp_path / "snapshot" / "tensors.bin"
    os.truncate(file, file.stat().st_size - 1)
    after = stepped(model(), 1)

    def fails() -> Iterator[tuple[str, Any]]:
        yield from after.items()
        raise InterruptedError

    with Publisher(tmp_path / "store", options) as publisher, pytest.raises(InterruptedError):
        publisher.publish(fails())
    with Publisher(tmp_path / "store", options) as publisher:
        assert publisher.publish(after).is_full

    assert reader.newest(tmp_path / "store") == state(after)


def test_a_snapshot_of_a_version_that_the_store_lacks_is_not_compared_with(tmp_path: Path) -> None:
    """Another trainer's version of the same number has another index."""
    options = Options(snapshot=tmp_path / "snapshot")
    with Publisher(tmp_path / "one", options) as publisher:
        publisher.publish(model())
    with Publisher(tmp_path / "other") as publisher:
        publisher.publish(model())

    with Publisher(tmp_path / "other", options) as publisher:
        found = publisher.publish(stepped(model(), 1))

    assert (found.version, found.is_full) == (2, True)


def test_a_snapshot_keeps_its_number_when_the_store_was_emptied(tmp_path: Path) -> None:
    options = Options(snapshot=tmp_path / "snapshot")
    with Publisher(tmp_path / "one", options) as publisher:
        publisher.publish(model())
    with Publisher(tmp_path / "two", options) as publisher:
        found = publisher.publish(model())

    assert (found.version, found.is_full) == (2, True)


def test_a_restarted_trainer_continues_with_deltas(tmp_path: Path) -> None:
    options = Options(snapshot=tmp_path / "snapshot", anchor_every=3)
    found = []
    for seed in range(4):
        with Publisher(tmp_path / "store", options) as publisher:
            found.append(publisher.publish(stepped(model(), seed)))

    assert [one.version for one in found] == [1, 2, 3, 4]
    assert [one.is_full for one in found] == [True, False, False, True]
    assert reader.newest(tmp_path / "store") == state(stepped(model(), 3))
