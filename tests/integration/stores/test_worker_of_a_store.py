"""A whole worker whose versions are in a store: changes, and faults that pause no worker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.settings import SidecarSettings
from tests.contract.conftest import settled
from tests.contract.subject import Subject, Versions, client_of
from tests.fakes.behaviour import Behaviour
from tests.fakes.checkpoints import write_version
from tests.fakes.worker import Worker
from tests.integration.stores.conftest import Upload
from tests.integration.stores.proxy import SECRET, StoreProxy
from tests.patience import seconds_until

pytestmark = pytest.mark.integration
NAMES = Versions()


@pytest.fixture
async def worker(
    settings: SidecarSettings, tmp_path: Path, upload: Upload
) -> AsyncIterator[Worker]:
    for seed, name in enumerate((NAMES.first, NAMES.second), 1):
        upload(write_version(tmp_path / "trainer", name, seed=seed, shards=seed))
    store = {
        name: getattr(settings, name)
        for name in ("weights_source", "store_endpoint", "store_credentials", "cache_dir")
    }
    worker = Worker(
        "127.0.0.1",
        settings.model_path,
        tmp_path / "no-volume",
        "token",
        tmp_path / "pod",
        engine_port=0,
        admin_port=0,
        behaviour=Behaviour(token_s=0.001),
        poll_s=0.05,
        cache_spare=0,
        store_retry_s=0.5,
        follow_s=0.1,
        **store,
    )
    async with worker:
        await settled(worker, lambda report: report.stage is Stage.CLOSED)
        yield worker


@pytest.fixture
async def subject(worker: Worker) -> AsyncIterator[Subject]:
    async with worker.client() as admin, client_of(worker.engine_url) as engine:
        yield Subject(admin, engine, "fake", NAMES)


async def test_a_worker_changes_to_versions_of_a_store(subject: Subject) -> None:
    first = await subject.serve(NAMES.first)
    second = await subject.serve(NAMES.second)

    assert (first.proved, second.proved) == (NAMES.first, NAMES.second)
    assert second.stage is Stage.OPEN


async def test_a_worker_that_is_asked_reports_the_newest_version(
    subject: Subject, worker: Worker, tmp_path: Path, upload: Upload
) -> None:
    async def reports(name: str) -> bool:
        reply = await subject.admin.get(paths.STATE_PATH, headers={paths.FOLLOW_HEADER: "1"})
        newest = reply.json()["newest"]
        return newest is not None and newest["version"] == name

    assert (await subject.report()).newest is None
    await seconds_until(lambda: reports(NAMES.second))
    upload(write_version(tmp_path / "trainer", "step-3", seed=3))
    await seconds_until(lambda: reports("step-3"))


async def test_a_rollback_needs_no_store(subject: Subject, proxy: StoreProxy) -> None:
    await subject.serve(NAMES.first)
    await subject.serve(NAMES.second)
    proxy.inject("hang up")

    assert (await subject.serve(NAMES.first)).proved == NAMES.first


@pytest.mark.parametrize("fault", ["expired", "denied", "error 503", "other tag", "hang up"])
async def test_a_fault_of_the_store_pauses_no_worker(
    subject: Subject, worker: Worker, proxy: StoreProxy, fault: str
) -> None:
    await subject.serve(NAMES.first)
    proxy.inject(fault)

    reply = await subject.send(paths.PREPARE_PATH, NAMES.second, wait_s=0)

    assert reply.status_code == 422
    assert reply.json()["code"] in {Code.CHECKPOINT_UNREADABLE, Code.CHECKPOINT_INVALID}
    assert SECRET not in reply.text
    report = await subject.report()
    assert (report.stage, report.proved) == (Stage.OPEN, NAMES.first)
    assert worker.engine.gate.is_open
    assert (await subject.complete()).status_code == 200
    proxy.fault = ""
    assert (await subject.serve(NAMES.second)).proved == NAMES.second


async def test_a_version_that_comes_late_is_waited_for(
    subject: Subject, tmp_path: Path, upload: Upload
) -> None:
    await subject.serve(NAMES.first)
    await subject.refused(Code.VERSION_NOT_FOUND, paths.PREPARE_PATH, "step-3", wait_s=0)

    upload(write_version(tmp_path / "trainer", "step-3", seed=3))

    assert (await subject.serve("step-3")).proved == "step-3"
