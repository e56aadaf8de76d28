"""prime-rl's own way of updating two workers: retries, timeouts, and its ``finally``."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.report import Stage
from tests.contract.conftest import TOKEN, settled
from tests.fakes.behaviour import Behaviour
from tests.fakes.worker import Worker

ATTEMPTS = 10
ATTEMPT_S = 1.0
"""Stands for its 720 s, in tests of what takes longer."""
WAIT_S = 0.05


class PrimeRL:
    """The admin client of its orchestrator, as utils/client.py has it."""

    def __init__(self, clients: list[httpx.AsyncClient]) -> None:
        self._clients = clients
        self.attempt_s = 30.0
        self.statuses: list[tuple[str, int | str]] = []

    async def update(self, directory: Path) -> None:
        """Pause all, update all, and resume all whatever happened."""
        await self._all("/pause?mode=keep&clear_cache=false")
        try:
            make_ready(directory)
            await self._all("/update_weights", {"weight_dir": directory.as_posix()})
        finally:
            await self._all("/resume")

    async def _all(self, path: str, body: object = None) -> None:
        await asyncio.gather(*(self._post(client, path, body) for client in self._clients))

    async def _post(self, client: httpx.AsyncClient, path: str, body: object) -> None:
        for attempt in range(ATTEMPTS):
            try:
                reply = await client.post(path, json=body, timeout=self.attempt_s)
            except httpx.TransportError as error:
                self.statuses.append((path, type(error).__name__))
            else:
                self.statuses.append((path, reply.status_code))
                if reply.status_code < 500 or attempt == ATTEMPTS - 1:
                    reply.raise_for_status()
                    return
            await asyncio.sleep(WAIT_S)
        raise TimeoutError(path)


def make_ready(directory: Path) -> None:
    """Write its marker into a directory, which it creates if it is missing."""
    directory.mkdir(exist_ok=True)
    (directory / "NCCL_READY").touch()


@pytest.fixture
async def workers(tmp_path: Path, model: Path, weights: Path) -> AsyncIterator[list[Worker]]:
    """Two workers that serve the first version."""
    async with AsyncExitStack() as stack:
        made = []
        for name in ("one", "two"):
            worker = Worker(
                "127.0.0.1", model, weights, TOKEN, tmp_path / name, engine_port=0, admin_port=0,
                poll_s=0.05, probe_tokens=2, trainer_wait_s=0.2,
            )  # fmt: skip
            await stack.enter_async_context(worker)
            await settled(worker, lambda report: report.stage is Stage.CLOSED)
            made.append(worker)
            async with worker.client() as client:
                for path in (paths.PREPARE_PATH, paths.UPDATE_WEIGHTS_PATH):
                    command = {"operation": "o", "version": "step-1"}
                    assert (await client.post(path, json=command)).is_success
        yield made


@pytest.fixture
async def trainer(workers: list[Worker]) -> AsyncIterator[PrimeRL]:
    async with AsyncExitStack() as stack:
        yield PrimeRL([await stack.enter_async_context(w.client()) for w in workers])


async def states(workers: list[Worker]) -> list[tuple[Stage, str | None]]:
    """Return the workers' stages and proved versions."""
    return [(report.stage, report.proved) for report in [await w.report() for w in workers]]


async def test_it_updates_all(trainer: PrimeRL, workers: list[Worker], weights: Path) -> None:
    await trainer.update(weights / "step-2")

    assert await states(workers) == [(Stage.OPEN, "step-2")] * 2
    assert {status for _, status in trainer.statuses} == {200}


async def test_a_load_that_outlasts_its_timeout_is_joined_and_happens_once(
    trainer: PrimeRL, workers: list[Worker], weights: Path
) -> None:
    trainer.attempt_s = ATTEMPT_S
    workers[0].engine.behaviour = Behaviour(reload_s=ATTEMPT_S * 1.5)
    reloads = workers[0].engine.reloads

    await trainer.update(weights / "step-2")

    assert ("/update_weights", "ReadTimeout") in trainer.statuses
    assert workers[0].engine.reloads == reloads + 1
    assert await states(workers) == [(Stage.OPEN, "step-2")] * 2


@pytest.mark.parametrize("behaviour", [{"reload_fails": True}, {"wobbles": True}])
async def test_a_worker_that_fails_is_not_resumed_and_reports_it_at_once(
    trainer: PrimeRL, workers: list[Worker], weights: Path, behaviour: dict[str, Any]
) -> None:
    workers[0].engine.behaviour = Behaviour(**behaviour)

    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await trainer.update(weights / "step-2")

    assert trainer.statuses.count(("/update_weights", 422)) == 1
    assert trainer.statuses.count(("/resume", 409)) == 1
    assert (await workers[0].report()).stage is Stage.DOUBT
    assert not workers[0].engine.gate.is_open


async def test_a_version_that_is_refused_everywhere_is_served_nowhere_and_the_next_one_is(
    trainer: PrimeRL, workers: list[Worker], weights: Path
) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        await trainer.update(weights / "step-8")

    assert ("/update_weights", 425) in trainer.statuses
    assert await states(workers) == [(Stage.PAUSED, "step-1")] * 2

    await trainer.update(weights / "step-2")
    assert await states(workers) == [(Stage.OPEN, "step-2")] * 2


async def test_a_worker_that_an_operator_brings_along_is_waited_for(
    trainer: PrimeRL, workers: list[Worker], weights: Path
) -> None:
    """A worker that was replaced catches up while the others serve; no trainer dies of that."""
    fence = {"fleet": "f", "pod": "p", "epoch": 1, "sequence": 1}
    trainer.attempt_s = ATTEMPT_S
    # Longer than it retries a worker that returns retryable errors.
    workers[0].engine.behaviour = Behaviour(reload_s=ATTEMPTS * WAIT_S + ATTEMPT_S / 2)
    command = {"operation": "catch-up", "version": "step-2"}
    async with workers[0].client() as operator:
        await operator.post(paths.PREPARE_PATH, json=command)
        bringing = asyncio.create_task(
            operator.post(paths.UPDATE_WEIGHTS_PATH, json=command | {"fence": fence})
        )
        await settled(workers[0], lambda report: report.stage is Stage.LOADING)

        await trainer.update(weights / "step-1")

        assert (await bringing).is_success
    assert {status for _, status in trainer.statuses} <= {200, "ReadTimeout"}
    assert await states(workers) == [(Stage.OPEN, "step-1")] * 2
