"""However many deltas are applied, what they hold together is bounded."""

import threading
import tracemalloc
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from rlfleet_contract.engine.safetensors import Tensor
from rlfleet_sidecar.checkpoints.safe_paths import Layout
from rlfleet_sidecar.deltas.memory import LIMIT, MemoryBudget
from rlfleet_sidecar.deltas.open_delta import opened
from rlfleet_sidecar.deltas.publications import AT_ONCE
from tests.fakes.deltas.indexed import write_delta
from tests.unit.rlfleet_sidecar.deltas.conftest import look

SIZE = 4 * 1024 * 1024
MIB = 1024 * 1024


def most_at_once(memory: MemoryBudget, sizes: Sequence[int]) -> int:
    """Take these bytes in a thread each; returns the most that were taken at a time."""
    lock, now, most = threading.Lock(), 0, 0

    def take(nbytes: int) -> None:
        nonlocal now, most
        for _ in range(200):
            with memory.taken(nbytes):
                with lock:
                    now += nbytes
                    most = max(most, now)
                with lock:
                    now -= nbytes

    threads = [threading.Thread(target=take, args=(size,), daemon=True) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return most


def test_threads_take_at_most_the_limit_together() -> None:
    assert 4 <= most_at_once(MemoryBudget(10), [4, 3, 4, 3, 4, 3]) <= 10


def test_what_exceeds_the_limit_is_taken_alone() -> None:
    assert most_at_once(MemoryBudget(10), [12, 12, 3, 3]) == 12


@pytest.mark.parametrize(("encoding", "most"), [("xor", 3 * MIB), ("overwrite", 4 * MIB)])
def test_a_large_fragment_is_not_held_and_its_decoders_are_counted(
    encoding: str, most: int, weights: Path
) -> None:
    random = Random(1)  # noqa: S311 - no secret
    old, new = random.randbytes(SIZE), random.randbytes(SIZE)
    write_delta(weights, 1, {"a": old}, {"a": new}, encoding=encoding)
    published = look(weights, "weight_v000001")
    assert published.delta is not None
    fragment = published.delta.fragments["a"]
    assert fragment.nbytes > SIZE // 2
    with ExitStack() as stack:
        folders = stack.enter_context(
            Layout.of(f"{weights}/{{version}}").open("weight_v000001", None)
        )
        one = stack.enter_context(opened(folders[-1], published.delta, published.files))
        unchecked = one.memory(fragment)
        one.demand_applicable({"a": Tensor("a", "U8", (SIZE,), 0, SIZE)})
        tracemalloc.start()
        try:
            begun = one.begun(fragment, SIZE)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert begun[0] == weights / "weight_v000001" / fragment.file
    assert held < 2 * MIB
    assert one.memory(fragment) <= most < unchecked
    assert unchecked * AT_ONCE <= LIMIT + 64 * MIB
