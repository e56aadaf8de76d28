"""When a worker deletes: only while a driver names what is needed, and never what it holds."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.retention import Needs
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.retention.keeper import Keeper
from rlfleet_sidecar.retention.stock import Stock
from rlfleet_sidecar.settings import SidecarSettings
from tests.patience import seconds_until

OFTEN_S = 0.02
NEEDS = Needs(versions=["step-5"])
DELETES = Needs(versions=["step-5"], keep=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(1, 7):
        folder = tmp_path / f"step-{number}"
        folder.mkdir()
        (folder / "STABLE").touch()
        os.utime(folder / "STABLE", (number, number))
    return tmp_path


@asynccontextmanager
async def keeping(
    root: Path,
    in_use: Callable[[], frozenset[str]] = frozenset,
    remove: Callable[[str], None] | None = None,
    fresh_s: float = 60.0,
) -> AsyncIterator[Keeper]:
    settings = SidecarSettings(
        model_name="m", model_path=Path("/m"), weights_path=f"{root}/{{version}}"
    )
    stock = Stock(settings, Layouts.of(settings))
    remove = remove or (lambda version: shutil.rmtree(root / version))
    keeper = Keeper(stock, remove, OFTEN_S, fresh_s)
    task = asyncio.create_task(keeper.run(in_use))
    try:
        yield keeper
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


async def found(keeper: Keeper) -> None:
    async def is_found() -> bool:
        return keeper.found is not None

    await seconds_until(is_found)


async def test_it_only_reports_unless_the_fleet_says_how_many_to_keep(root: Path) -> None:
    async with keeping(root) as keeper:
        await asyncio.sleep(5 * OFTEN_S)
        assert keeper.found is None
        keeper.ask(NEEDS)
        await found(keeper)
        assert keeper.found is not None
        assert keeper.found.versions == ["step-1", "step-2", "step-3", "step-4"]
        assert (keeper.found.count, keeper.found.deleted) == (4, 0)
    assert len(names(root)) == 6


async def test_it_deletes_what_is_not_needed_and_counts(root: Path) -> None:
    async with keeping(root, lambda: frozenset({"step-2"})) as keeper:
        keeper.ask(DELETES)
        await found(keeper)
        assert keeper.found is not None
        assert (keeper.found.versions, keeper.found.count, keeper.found.deleted) == ([], 0, 3)
    assert names(root) == ["step-2", "step-5", "step-6"]


async def test_what_the_worker_takes_up_during_a_deletion_is_kept(root: Path) -> None:
    held: set[str] = set()

    def remove(version: str) -> None:
        shutil.rmtree(root / version)
        held.add("step-2")

    async with keeping(root, lambda: frozenset(held), remove) as keeper:
        keeper.ask(DELETES)

        async def has_ended() -> bool:
            return keeper.found is not None and keeper.found.deleted == 3

        await seconds_until(has_ended)
    assert names(root) == ["step-2", "step-5", "step-6"]


async def test_a_change_of_what_is_needed_ends_the_deletion(root: Path) -> None:
    asked: list[Keeper] = []

    def remove(version: str) -> None:
        shutil.rmtree(root / version)
        asked[0].ask(Needs(versions=["step-2", "step-5"], keep=4))

    async with keeping(root, remove=remove) as keeper:
        asked.append(keeper)
        keeper.ask(DELETES)
        await found(keeper)
        await asyncio.sleep(5 * OFTEN_S)
    assert names(root) == ["step-2", "step-3", "step-4", "step-5", "step-6"]


async def test_it_stops_when_no_driver_asks_any_longer(root: Path) -> None:
    async with keeping(root, fresh_s=10 * OFTEN_S) as keeper:
        keeper.ask(NEEDS)
        await found(keeper)

        async def is_forgotten() -> bool:
            return keeper.found is None

        await seconds_until(is_forgotten)
        keeper.ask(NEEDS)
        await found(keeper)


async def test_an_error_is_reported_with_what_was_known(root: Path) -> None:
    def remove(version: str) -> None:
        raise SidecarError(Code.CHECKPOINT_UNREADABLE, f"failed to delete {version}; allow it")

    async with keeping(root, remove=remove) as keeper:
        keeper.ask(NEEDS)
        await found(keeper)
        keeper.ask(DELETES)

        async def has_failed() -> bool:
            return keeper.found is not None and keeper.found.error != ""

        await seconds_until(has_failed)
        assert keeper.found is not None
        assert keeper.found.error == "failed to delete step-1; allow it"
        assert keeper.found.count == 4
    assert len(names(root)) == 6
