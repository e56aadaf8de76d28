"""A sidecar that dies at any call to the file system leaves no version that is not whole."""

import io
import os
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rlfleet_sidecar.settings import SidecarSettings
from tests import forks
from tests.fakes.checkpoints import write_model, write_version
from tests.fakes.deltas.indexed import write_delta
from tests.fakes.deltas.tensors import Tensors, tensors_of, trained
from tests.unit.rlfleet_sidecar.cache.test_delta_crash import (
    ONE,
    TWO,
    prepare,
    settings_of,
    store_of,
)

CALLS = frozenset(
    {"open", "pwrite", "copy_file_range", "sendfile", "ftruncate", "utime"}
    | {"mkdir", "rename", "replace", "rmdir", "unlink"}
)
"""Of the module os."""
METHODS = frozenset({"write", "truncate", "flush", "close", "__exit__"})
"""Of files."""
MOST = 400


def touches_files(call: Any) -> bool:
    """Return whether a function of C changes what is on the disk, or may."""
    name = getattr(call, "__name__", "")
    if getattr(call, "__module__", None) == "posix":
        return name in CALLS
    return call is io.open or (
        name in METHODS and isinstance(getattr(call, "__self__", None), io.IOBase)
    )


def dies_at(number: int, work: Callable[[], object]) -> bool:
    """Run work in a process that dies before or after such a call; return whether it came so far.

    Even numbers are before a call, odd ones after it, of all threads.
    """
    left, counting = [number], threading.Lock()

    def look(_: FrameType, event: str, call: Any) -> None:
        if event in {"c_call", "c_return"} and touches_files(call):
            with counting:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(forks.DEATH)

    def watch() -> None:
        threading.setprofile(look)
        sys.setprofile(look)

    return forks.dies(work, watch)


class Room:
    """A base model, a volume and a cache, before the prepare that is killed."""

    def __init__(self, root: Path, kind: str) -> None:
        self.settings: SidecarSettings = settings_of(root)
        self.versions = root / "cache" / "versions"
        base = tensors_of(write_model(root / "model", seed=0))
        weights = root / "weights"
        self.before: Tensors | None = None
        """Of the same name, in the cache."""
        if kind == "in place of another":
            self.before = _chain(weights, base, base)
            prepare(store_of(self.settings), TWO)
            shutil.rmtree(weights)
        if kind == "whole":
            self.after = tensors_of(write_version(weights, TWO, seed=5))
        else:
            # Other steps than those of the copy that is there.
            first = base if self.before is None else trained(base, 40)
            self.after = _chain(weights, base, first)
        if kind == "on a copy":
            prepare(store_of(self.settings), ONE)

    def copies(self) -> dict[str, Tensors]:
        """Return what lies there under versions' names."""
        return {path.name: tensors_of(path) for path in self.versions.glob("[!.]*")}


def restarted(settings: SidecarSettings) -> None:
    prepare(store_of(settings), TWO)


def _chain(root: Path, base: Tensors, towards: Tensors) -> Tensors:
    """Write two deltas above the base; returns the tensors of the second."""
    one = trained(towards, 1)
    two = trained(one, 2)
    write_delta(root, 1, base, one)
    write_delta(root, 2, one, two)
    return two


@pytest.mark.parametrize("kind", ["on the base", "on a copy", "in place of another", "whole"])
def test_a_crash_before_or_after_any_call_leaves_a_whole_version_or_none(
    tmp_path: Path, kind: str
) -> None:
    outcomes = set()
    for number in range(MOST):
        room = Room(tmp_path / str(number), kind)
        others = {name: found for name, found in room.copies().items() if name != TWO}

        died = dies_at(number, partial(restarted, room.settings))
        store = store_of(room.settings)

        left = room.copies()
        found, known = left.pop(TWO, None), store.present(TWO)
        assert found in (None, room.before, room.after)
        assert (known is None) is (found is None)
        assert left == others, "what it did not prepare is as it was"
        assert not list(room.versions.glob(".*")), "nothing else is left"
        outcomes.add((died, found == room.after))

        prepare(store, TWO)
        assert room.copies()[TWO] == room.after
        shutil.rmtree(tmp_path / str(number))
        if not died:
            break

    assert number > 2 * len(CALLS)
    # It died before and after the version was there, and at last it did not die.
    assert outcomes == {(True, False), (True, True), (False, True)}
