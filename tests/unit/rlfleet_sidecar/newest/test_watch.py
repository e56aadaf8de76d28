"""When a worker looks for versions, and what it does on a mount that does not answer."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.checkpoints.safe_paths import Layout
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest.offers import Offers
from rlfleet_sidecar.newest.search import Search
from rlfleet_sidecar.newest.watch import NewestWatch, pause_s
from tests.patience import seconds_until

OFTEN_S = 0.01
PATIENCE_S = 0.2


class DeadMount(Search):
    """A search whose volume answers only while it lives."""

    def __init__(self, root: Path) -> None:
        super().__init__(Layouts(Layout.of(f"{root}/{{version}}")), ("STABLE",), None)
        self.alive = threading.Event()
        self.alive.set()
        self.looks = 0

    def newest(self, known: Newest | None, now: float) -> Newest | None:
        self.looks += 1
        self.alive.wait()
        return super().newest(known, now)


@asynccontextmanager
async def running(
    search: Search, kept_s: float = 60.0, offers: Offers | None = None
) -> AsyncIterator[NewestWatch]:
    watch = NewestWatch(search, OFTEN_S, PATIENCE_S, kept_s, offers=offers)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def publish(root: Path, name: str) -> None:
    (root / name).mkdir(parents=True)
    (root / name / "STABLE").touch()


async def sees(watch: NewestWatch, version: str) -> None:
    async def is_seen() -> bool:
        return watch.newest is not None and watch.newest.version == version

    await seconds_until(is_seen)


async def test_it_looks_only_when_asked_and_then_again_and_again(tmp_path: Path) -> None:
    publish(tmp_path, "step-1")
    search = DeadMount(tmp_path)
    async with running(search) as watch:
        await asyncio.sleep(10 * OFTEN_S)
        assert (watch.newest, search.looks) == (None, 0)

        watch.ask()
        await sees(watch, "step-1")
        publish(tmp_path, "step-2")
        await sees(watch, "step-2")


async def test_a_mount_that_hangs_takes_one_thread_and_what_was_found_stays(tmp_path: Path) -> None:
    publish(tmp_path, "step-1")
    search = DeadMount(tmp_path)
    async with running(search) as watch:
        watch.ask()
        await sees(watch, "step-1")
        search.alive.clear()
        looks = search.looks
        await asyncio.sleep(3 * PATIENCE_S)
        try:
            assert search.looks <= looks + 1
            assert watch.newest is not None
            publish(tmp_path, "step-2")
        finally:
            search.alive.set()
        await sees(watch, "step-2")


async def test_a_root_that_disappears_leaves_what_was_found(tmp_path: Path) -> None:
    root = tmp_path / "weights"
    publish(root, "step-1")
    search = DeadMount(root)
    async with running(search) as watch:
        watch.ask()
        await sees(watch, "step-1")
        # At once: a removal step by step would show an empty root.
        root.rename(tmp_path / "away")
        looks = search.looks

        async def looked_again() -> bool:
            return search.looks > looks + 2

        await seconds_until(looked_again)
        assert watch.newest is not None
        publish(root, "step-2")
        await sees(watch, "step-2")


async def sees_nothing(watch: NewestWatch) -> None:
    async def is_empty() -> bool:
        return watch.newest is None

    await seconds_until(is_empty)


@pytest.mark.parametrize("fault", ["hangs", "is gone"])
async def test_what_was_found_is_dropped_when_no_look_succeeds_for_long(
    tmp_path: Path, fault: str
) -> None:
    root = tmp_path / "weights"
    publish(root, "step-1")
    search = DeadMount(root)
    async with running(search, kept_s=2 * PATIENCE_S) as watch:
        watch.ask()
        await sees(watch, "step-1")
        try:
            if fault == "hangs":
                search.alive.clear()
            else:
                root.rename(tmp_path / "away")
            await sees_nothing(watch)
        finally:
            search.alive.set()
        if fault == "is gone":
            (tmp_path / "away").rename(root)
        await sees(watch, "step-1")


async def test_a_pointer_that_names_no_version_hides_what_was_found_at_once(tmp_path: Path) -> None:
    publish(tmp_path, "step-1")
    async with running(DeadMount(tmp_path)) as watch:
        watch.ask()
        await sees(watch, "step-1")
        pointer = tmp_path / "latest"
        pointer.write_text("see below")
        await sees_nothing(watch)
        pointer.write_text("step-1")
        await sees(watch, "step-1")


async def test_why_looks_fail_is_reported_until_one_succeeds(tmp_path: Path) -> None:
    root = tmp_path / "weights"
    search = DeadMount(root)
    async with running(search) as watch:
        watch.ask()

        async def is_reported() -> bool:
            return watch.failure is not None

        await seconds_until(is_reported)
        assert watch.failure is not None
        assert str(root) in watch.failure.message
        assert search.looks > 1, "one alone is not reported"
        publish(root, "step-1")
        await sees(watch, "step-1")
        assert watch.failure is None


async def test_a_mount_that_never_answered_is_reported(tmp_path: Path) -> None:
    search = DeadMount(tmp_path)
    search.alive.clear()
    async with running(search) as watch:
        watch.ask()

        async def is_reported() -> bool:
            return watch.failure is not None

        try:
            await seconds_until(is_reported)
        finally:
            search.alive.set()
        assert watch.failure is not None
        assert "does not answer" in watch.failure.message


def offer(root: Path, name: str) -> Path:
    (root / name).mkdir(parents=True)
    (root / name / ".sender_ready").touch()
    return root / name / ".receiver_ready"


async def test_an_offer_is_accepted_once_the_fleet_has_taken_up_the_version_before(
    tmp_path: Path,
) -> None:
    publish(tmp_path, "step-1")
    accepted = offer(tmp_path, "step-2")
    search, offers = DeadMount(tmp_path), Offers(Layouts(Layout.of(f"{tmp_path}/{{version}}")))

    async def is_accepted() -> bool:
        return accepted.exists()

    async with running(search, offers=offers) as watch:
        for taken_up in (None, "base"):
            watch.ask(taken_up)
            await sees(watch, "step-1")
            await asyncio.sleep(10 * OFTEN_S)
            assert not accepted.exists()
        watch.ask("step-1")
        await seconds_until(is_accepted)


class ReadOnly(Offers):
    """Offers on a volume that is mounted read-only."""

    def accept(self) -> tuple[str, ...]:
        raise SidecarError(Code.CHECKPOINT_UNREADABLE, "failed to write /w: Read-only file system")


async def test_a_volume_that_cannot_be_written_is_reported_and_hides_no_version(
    tmp_path: Path,
) -> None:
    publish(tmp_path, "step-1")
    offers = ReadOnly(Layouts(Layout.of(f"{tmp_path}/{{version}}")))
    async with running(DeadMount(tmp_path), offers=offers) as watch:
        watch.ask("step-2")

        async def is_reported() -> bool:
            return watch.failure is not None

        await seconds_until(is_reported)
        await sees(watch, "step-1")
        watch.ask()

        async def is_over() -> bool:
            return watch.failure is None

        await seconds_until(is_over)


@pytest.mark.parametrize(
    ("quiet_s", "rarest_s", "expected"),
    [(1e6, 0.0, 3.0), (0.0, 30.0, 3.0), (60.0, 30.0, 3.0), (200.0, 30.0, 10.0), (1e6, 30.0, 30.0)],
)
def test_looks_at_a_store_become_rarer_while_nothing_comes(
    quiet_s: float, rarest_s: float, expected: float
) -> None:
    assert pause_s(quiet_s, 3.0, rarest_s) == expected
