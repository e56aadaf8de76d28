"""Unneeded versions, deleted in a real S3 server: which, and what faults leave of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import obstore
import pytest
from aiohttp import web
from obstore.store import S3Store

from dev.s3 import server
from rlfleet.publish import Options, Publisher
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.retention import Needs, Unneeded
from rlfleet_sidecar.retention.keeper import Keeper
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.checkpoints import write_version
from tests.fakes.deltas.tensors import tensors_of
from tests.integration.stores.conftest import Upload, store_of
from tests.integration.stores.proxy import SECRET, StoreProxy
from tests.integration.stores.test_versions_in_stores import prepared, refusal
from tests.patience import seconds_until

pytestmark = pytest.mark.integration
DELETION = "POST"
"""S3 deletes many objects by one POST."""


@asynccontextmanager
async def keeping(
    settings: SidecarSettings, needed: Iterable[str], keep: int | None = 1
) -> AsyncIterator[Keeper]:
    short = settings.model_copy(update={"store_retry_s": 0.2, "retain_s": 0.05})
    keeper = Keeper.of(short)
    task = asyncio.create_task(keeper.run(frozenset))
    try:
        keeper.ask(Needs(versions=list(needed), keep=keep))
        yield keeper
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(keeper: Keeper, holds: Callable[[Unneeded], bool]) -> Unneeded:
    async def is_so() -> bool:
        return keeper.found is not None and holds(keeper.found)

    await seconds_until(is_so)
    assert keeper.found is not None
    return keeper.found


def keys(store: S3Store) -> list[str]:
    return sorted(str(meta["path"]) for page in obstore.list(store) for meta in page)


def versions(store: S3Store) -> set[str]:
    return {key.removeprefix("run/").removeprefix("updates/").split("/")[0] for key in keys(store)}


@pytest.fixture
def three(upload: Upload, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        upload(write_version(tmp_path / "trainer", f"step-{number}", seed=number))


@pytest.mark.usefixtures("three")
async def test_versions_that_are_not_needed_are_deleted(
    settings: SidecarSettings, store: S3Store
) -> None:
    obstore.put(store, "run/step-1/deeper/file", b"x")
    async with keeping(settings, ["step-3"]) as keeper:
        found = await until(keeper, lambda found: found.deleted == 2)

    assert (found.versions, found.count, found.error) == ([], 0, "")
    assert versions(store) == {"step-3"}
    prepared(settings, "step-3")


@pytest.mark.usefixtures("three")
async def test_without_a_number_to_keep_they_are_only_listed(
    settings: SidecarSettings, store: S3Store
) -> None:
    before = keys(store)
    async with keeping(settings, ["step-3"], None) as keeper:
        found = await until(keeper, lambda _: True)

    assert (found.versions, found.count, found.deleted) == (["step-1", "step-2"], 2, 0)
    assert keys(store) == before


@pytest.mark.usefixtures("three")
async def test_a_half_deleted_version_is_not_complete_and_is_deleted_later(
    settings: SidecarSettings, store: S3Store, proxy: StoreProxy
) -> None:
    seen: list[int] = []

    def is_second(request: web.BaseRequest) -> bool:
        seen.extend([1] if request.method == DELETION else [])
        return request.method == DELETION and len(seen) > 1

    proxy.inject("error 503")
    proxy.strikes = is_second
    async with keeping(settings, ["step-3"]) as keeper:
        failed = await until(keeper, lambda found: found.error != "")
        assert failed.error.startswith("failed to delete s3://")
        assert "the store answers 503" in failed.error
        assert "run/step-1/model.safetensors" in keys(store)
        assert refusal(settings, "step-1").code is Code.CHECKPOINT_INCOMPLETE
        proxy.fault = ""
        await until(keeper, lambda found: not found.error and found.deleted == 2)
    assert versions(store) == {"step-3"}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("fault", ["denied", "expired"])
async def test_credentials_that_may_not_delete_are_named(
    settings: SidecarSettings, store: S3Store, proxy: StoreProxy, fault: str
) -> None:
    before = keys(store)
    proxy.inject(fault, only=DELETION)
    async with keeping(settings, ["step-3"]) as keeper:
        found = await until(keeper, lambda found: found.error != "")

    assert "failed to delete s3://" in found.error
    assert "access denied" in found.error
    assert SECRET not in found.error
    assert (found.deleted, keys(store)) == (0, before)


async def test_what_cannot_be_deleted_hides_no_version(
    settings: SidecarSettings, bucket: str, s3: server.Server, store: S3Store
) -> None:
    """Steps that were saved without weights, and the object that a console makes of a folder."""
    for number in range(1, 61):
        name = "optimizer/state.pt" if number <= 20 else "model.safetensors"
        obstore.put(store, f"step-{number}/{name}", b"x")
        if number % 2:
            folder_object(s3.data / bucket / f"step-{number}")
    settings = settings.model_copy(update={"weights_source": f"s3://{bucket}/{{version}}"})

    async with keeping(settings, ["step-60"]) as keeper:
        await until(keeper, lambda found: found.deleted == 39 and not found.count)
        await asyncio.sleep(0.5)
        assert (keeper.found or Unneeded()).deleted == 39

    left = {key.partition("/")[0] for key in keys(store) if key.endswith("model.safetensors")}
    assert left == {"step-60"}


def folder_object(folder: Path) -> None:
    """Make an empty object whose key ends with a slash; its server has these as folders."""
    os.setxattr(folder, "user.etag", b"d41d8cd98f00b204e9800998ecf8427e")


async def test_the_chain_of_a_needed_delta_stays(
    settings: SidecarSettings, s3: server.Server, bucket: str, store: S3Store, tmp_path: Path
) -> None:
    saved = [write_version(tmp_path / "saved", f"step-{n}", seed=n) for n in range(1, 6)]
    with Publisher(store_of(s3, bucket, "run"), Options(run="run-1")) as publisher:
        for number, directory in enumerate(saved):
            publisher.publish(directory, full=number in {0, 2})
            # The store's times have whole seconds; versions are further apart.
            await asyncio.sleep(1.0)
    url = f"s3://{bucket}/run/updates/{{version}}"
    settings = settings.model_copy(update={"weights_source": url})

    async with keeping(settings, ["weight_v000004"]) as keeper:
        await until(keeper, lambda found: found.deleted == 2)

    assert versions(store) == {"latest", *(f"weight_v00000{n}" for n in (3, 4, 5))}
    for number in (4, 5):
        built = prepared(settings, f"weight_v00000{number}")
        assert tensors_of(built.directory) == tensors_of(saved[number - 1])
