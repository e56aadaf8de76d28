"""A fleet whose workers share a tiny version, in times of tests."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rlfleet_sidecar.cache import store
from rlfleet_sidecar.sharing import feed, piece_client, route, shared_source
from rlfleet_sidecar.sharing.pieces import pieces_of
from tests.contract.sharing.fleet import PATIENT_S, PIECE, SAMPLE, Fleet, Senders, running


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide a tiny version into many pieces, and leave a sender that fails for a moment."""
    monkeypatch.setattr(store, "pieces_of", lambda files: pieces_of(files, PIECE))
    monkeypatch.setattr(shared_source, "SAMPLE", SAMPLE)
    for module, name, seconds in (
        (feed, "_ROUND_S", 0.02),
        (feed, "_LONG_ROUND_S", 0.02),
        (feed, "_IDLE_ROUND_S", 0.05),
        (route, "_REST_S", 0.1),
        # A machine that stands still for seconds is no fault of a worker.
        (piece_client, "STALL_S", PATIENT_S),
        (piece_client, "PIECE_S", PATIENT_S),
        (feed, "_LOST_S", PATIENT_S),
        (feed, "_TRIAL_S", PATIENT_S),
        (feed, "START_S", PATIENT_S),
        (route, "START_S", PATIENT_S),
        (route, "_PATIENCE_S", PATIENT_S),
        (route, "_LONG_PATIENCE_S", PATIENT_S),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a sender that sends nothing, or little, for a moment."""
    monkeypatch.setattr(piece_client, "STALL_S", 0.5)
    monkeypatch.setattr(piece_client, "PIECE_S", 2.0)


@pytest.fixture
def loses_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a silent reader as lost in a second."""
    monkeypatch.setattr(feed, "_LOST_S", 1.0)
    monkeypatch.setattr(feed, "START_S", 2.0)
    monkeypatch.setattr(feed, "_ALONE_S", PATIENT_S)


@pytest.fixture
def impatient(loses_readers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the store soon when no worker is left to receive from."""
    monkeypatch.setattr(feed, "_ALONE_S", 0.5)
    monkeypatch.setattr(route, "START_S", 1.0)
    monkeypatch.setattr(route, "_LONG_PATIENCE_S", 1.0)


@pytest.fixture
async def fleet(
    request: pytest.FixtureRequest, tmp_path: Path, model: Path, weights: Path
) -> AsyncIterator[Fleet]:
    """Return two workers, or as many as a test says."""
    async with running(getattr(request, "param", 2), tmp_path, model, weights) as made:
        yield made


@pytest.fixture
def senders(fleet: Fleet) -> Iterator["Senders"]:
    with ExitStack() as stack:
        yield Senders(fleet, stack)
