"""Fixtures of the contract suite.

``subject`` is the worker under test: the fake one here; tests/e2e/test_contract.py runs
the same tests with a real one. ``fake`` is the fake worker with its levers, for tests
about lies.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.subject import Subject, Versions, client_of
from tests.fakes.adapters import write_adapter
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import spoil, write_model, write_version
from tests.fakes.worker import Worker
from tests.patience import seconds_until

TOKEN = "the-fleet-token"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", seed=0)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    root, names = tmp_path / "weights", Versions()
    write_version(root, names.first, seed=1)
    write_version(root, names.second, seed=2, shards=2)
    spoil(write_version(root, names.incomplete, seed=3), "no marker")
    spoil(write_version(root, names.broken, seed=4), "truncated by half")
    for step in (1, 2, 3):
        write_adapter(root / "adapters" / f"step-{step}", seed=step)
    return root


@pytest.fixture
def identity() -> dict[str, str]:
    """Return the worker's UIDs: none, unless a module overrides this."""
    return {}


@pytest.fixture
def kind() -> type[Worker]:
    """Which worker it is; a module may have one of its own."""
    return Worker


@pytest.fixture
async def fake(
    tmp_path: Path, model: Path, weights: Path, identity: dict[str, str], kind: type[Worker]
) -> AsyncIterator[Worker]:
    worker = kind(
        "127.0.0.1",
        model,
        weights,
        TOKEN,
        tmp_path / "pod",
        engine_port=0,
        admin_port=0,
        behaviour=Behaviour(token_s=0.001),
        poll_s=0.05,
        probe_tokens=2,
        **identity,
    )
    async with worker:
        await settled(worker, lambda report: report.stage is Stage.CLOSED)
        yield worker


async def settled(worker: Worker, is_so: Callable[[WorkerReport], bool]) -> WorkerReport:
    """Wait until the worker's report is so."""
    async with asyncio.timeout(30):
        while not is_so(report := await worker.report()):  # noqa: ASYNC110 - it is remote
            await asyncio.sleep(0.01)
    return report


async def ended(worker: Worker, stage: Stage) -> tuple[WorkerReport, float]:
    """Wait, giving no sign of life, until the worker stands there; return how long it took."""

    async def is_there() -> bool:
        return (await worker.report()).stage is stage

    took_s = await seconds_until(is_there)
    return await worker.report(), took_s


@pytest.fixture
async def subject(fake: Worker, weights: Path) -> AsyncIterator[Subject]:
    async with fake.client() as admin, client_of(fake.engine_url) as engine:
        yield Subject(admin, engine, "fake", Versions(), str(weights))


@pytest.fixture
async def served(subject: Subject, fake: Worker, weights: Path) -> Subject:
    """A worker that serves the first version, and a trainer that would send the second."""
    await subject.serve(subject.versions.first)
    fake.engine.transfer.arriving = weights / subject.versions.second
    return subject
