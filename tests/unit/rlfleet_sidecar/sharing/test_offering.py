"""Whether a worker counts as one that forwards what it receives."""

from pathlib import Path

import pytest

from rlfleet_sidecar.sharing.offering import WINDOW_S, Offering
from rlfleet_sidecar.sharing.pieces import Piece

PIECES = [Piece("model.safetensors", n, n + 1) for n in range(100)]


class Worker:
    """An offering, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.offering = Offering(
            "step-1", "0" * 32, PIECES, Path(), reads=False, clock=lambda: self.now
        )

    def receive(self, count: int, *, sends: bool) -> None:
        for _ in range(count):
            self.now += WINDOW_S / 10
            self.offering.keep(self.offering.held)
            if sends:
                self.offering.sent()


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_worker_that_sent_nothing_forwards_only_at_first(worker: Worker) -> None:
    assert worker.offering.forwards

    worker.receive(20, sends=False)

    assert not worker.offering.forwards


def test_a_worker_that_sends_nothing_for_two_seconds_no_longer_forwards(worker: Worker) -> None:
    worker.receive(10, sends=True)

    worker.receive(11, sends=False)

    assert not worker.offering.forwards


def test_a_worker_that_starves_still_forwards(worker: Worker) -> None:
    worker.receive(10, sends=True)

    worker.now += 10 * WINDOW_S

    assert worker.offering.forwards
