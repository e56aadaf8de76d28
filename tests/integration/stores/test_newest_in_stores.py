"""The newest version in a real S3 server: which one, what a look costs, and what faults leave."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

from dev.s3 import server
from rlfleet.publish import Options, Publisher
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest.search import BrokenPointerError, Search
from rlfleet_sidecar.newest.watch import NewestWatch
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.checkpoints import write_version
from tests.fakes.deltas.tensors import tensors_of
from tests.integration.stores.conftest import Upload, store_of
from tests.integration.stores.proxy import SECRET, StoreProxy
from tests.integration.stores.test_versions_in_stores import prepared, refusal
from tests.patience import seconds_until

pytestmark = pytest.mark.integration
NOW = 1000.0
Put = Callable[[str, bytes], Any]


@pytest.fixture
def put(store: S3Store) -> Put:
    """Write an object."""
    return lambda name, data: obstore.put(store, name, data)


@pytest.fixture
def trainer(s3: server.Server, bucket: str, settings: SidecarSettings) -> Iterator[Publisher]:
    """Publish into Stitch's store."""
    options = Options(run="run-1", base=settings.model_path)
    with Publisher(store_of(s3, bucket, "run"), options) as publisher:
        yield publisher


def search_of(settings: SidecarSettings, **other: Any) -> Search:
    found = settings.model_copy(update={"store_retry_s": 0.2, **other})
    return Search(Layouts.of(found), found.markers, None)


def in_updates(settings: SidecarSettings) -> SidecarSettings:
    """Return them for Stitch's store."""
    url = str(settings.weights_source).replace("{version}", "updates/{version}")
    return settings.model_copy(update={"weights_source": url})


def served_plainly(proxy: StoreProxy, bucket: str) -> dict[str, Any]:
    """Return settings that read the bucket as an HTTP server's files."""
    url = f"{proxy.url}/{bucket}/run/{{version}}"
    return {"weights_source": url, "store_endpoint": "", "store_credentials": None}


def saved(tmp_path: Path, seed: int) -> Path:
    return write_version(tmp_path / "saved", f"step-{seed}", seed=seed)


def version(upload: Upload, tmp_path: Path, name: str, *, complete: bool = True) -> None:
    folder = write_version(tmp_path / "trainer", name, seed=1)
    if not complete:
        (folder / "STABLE").unlink()
    upload(folder)


def test_the_highest_complete_version_is_the_newest(
    settings: SidecarSettings, tmp_path: Path, upload: Upload
) -> None:
    version(upload, tmp_path, "step-9")
    version(upload, tmp_path, "step-10")
    version(upload, tmp_path, "step-11", complete=False)
    version(upload, tmp_path, "final")

    assert search_of(settings).newest(None, NOW) == Newest(version="step-10", found_at=NOW)


def test_an_empty_bucket_has_no_newest_version(settings: SidecarSettings) -> None:
    assert search_of(settings).newest(None, NOW) is None


def test_versions_at_the_top_of_a_bucket_are_found(
    settings: SidecarSettings, bucket: str, put: Put
) -> None:
    put("step-3/STABLE", b"")
    search = search_of(settings, weights_source=f"s3://{bucket}/{{version}}")

    assert search.newest(None, NOW) == Newest(version="step-3", found_at=NOW)


def test_a_look_without_news_costs_one_listing(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, proxy: StoreProxy
) -> None:
    for number in range(3):
        version(upload, tmp_path, f"step-{number}")
    search = search_of(settings)
    known = search.newest(None, NOW)
    proxy.seen.clear()

    assert search.newest(known, NOW + 1) == known
    listed = [line for line in proxy.seen if "list-type" in line]
    assert (len(listed), len(proxy.seen)) == (1, 3)


def test_a_pointer_without_news_costs_one_request_without_a_body(
    settings: SidecarSettings, put: Put, proxy: StoreProxy
) -> None:
    put("run/latest", b"run-1/weight_v000007")
    put("run/updates/weight_v000007/model.safetensors", b"x")
    search = search_of(in_updates(settings))
    known = search.newest(None, NOW)
    proxy.seen.clear()

    assert known == Newest(version="weight_v000007", run="run-1", found_at=NOW)
    assert search.newest(known, NOW + 1) == known
    assert (len(proxy.seen), proxy.statuses[-1]) == (1, 304)


def test_a_pointer_that_moves_is_read_again(settings: SidecarSettings, put: Put) -> None:
    search = search_of(settings)
    put("run/weight_v000001/model.safetensors", b"x")
    put("run/weight_v000002/model.safetensors", b"x")
    put("run/latest", b"weight_v000002")
    known = search.newest(None, NOW)
    put("run/latest", b"weight_v000001")

    found = search.newest(known, NOW)

    assert known is not None
    assert found is not None
    assert (known.version, found.version) == ("weight_v000002", "weight_v000001")


@pytest.mark.parametrize("data", [b"", b"see below", b"x" * 5000])
def test_a_broken_pointer_hides_every_version(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, put: Put, data: bytes
) -> None:
    version(upload, tmp_path, "step-1")
    put("run/latest", data)

    with pytest.raises(BrokenPointerError, match="expected RUN/weight_vNNNNNN"):
        search_of(settings).newest(None, NOW)


# --- a trainer that publishes deltas ------------------------------------------------------------


def test_a_trainer_s_deltas_are_found_by_its_pointer_and_built(
    settings: SidecarSettings, trainer: Publisher, tmp_path: Path
) -> None:
    settings = in_updates(settings)
    search = search_of(settings)
    found: Newest | None = None
    for number in (1, 2):
        published = trainer.publish(saved(tmp_path, number))
        found = search.newest(found, NOW + number)

        assert not published.is_full
        assert found == Newest(version=published.name, run="run-1", found_at=NOW + number)

    built = prepared(settings, "weight_v000002")
    assert tensors_of(built.directory) == tensors_of(tmp_path / "saved" / "step-2")


def test_a_version_beyond_the_pointer_is_waited_for(
    settings: SidecarSettings, trainer: Publisher, put: Put, tmp_path: Path
) -> None:
    trainer.publish(saved(tmp_path, 1))
    put("run/latest", b"run-1/weight_v000000")

    found = refusal(in_updates(settings), "weight_v000001")

    assert found.code is Code.CHECKPOINT_INCOMPLETE
    assert "run/latest names weight_v000000, older than weight_v000001" in found.message


def test_a_pointer_that_cannot_be_read_builds_nothing(
    settings: SidecarSettings, trainer: Publisher, proxy: StoreProxy, tmp_path: Path
) -> None:
    """Without the pointer nothing shows which run a version is of."""
    settings = in_updates(settings).model_copy(update={"store_retry_s": 0.2})
    trainer.publish(saved(tmp_path, 1))
    proxy.inject("error 503", only="latest")

    assert refusal(settings, "weight_v000001").code is Code.CHECKPOINT_UNREADABLE


# --- a server that lists nothing ----------------------------------------------------------------


def test_a_pointer_is_enough_on_a_server_that_lists_nothing(
    settings: SidecarSettings,
    tmp_path: Path,
    upload: Upload,
    put: Put,
    proxy: StoreProxy,
    s3: server.Server,
    bucket: str,
) -> None:
    version(upload, tmp_path, "step-1")
    put("run/latest", b"step-1")
    s3.make_public(bucket)
    search = search_of(settings, **served_plainly(proxy, bucket))

    known = search.newest(None, NOW)
    proxy.seen.clear()

    assert known == Newest(version="step-1", found_at=NOW)
    assert search.newest(known, NOW) == known
    assert (len(proxy.seen), proxy.statuses[-1]) == (1, 304)


def test_without_a_pointer_such_a_server_is_refused(
    settings: SidecarSettings, proxy: StoreProxy, s3: server.Server, bucket: str
) -> None:
    s3.make_public(bucket)

    with pytest.raises(SidecarError, match="an HTTP server lists nothing; let the trainer write"):
        search_of(settings, **served_plainly(proxy, bucket)).newest(None, NOW)


# --- faults -------------------------------------------------------------------------------------

FAULTS = {
    "error 500": "the store answers 500",
    "error 503": "the store answers 503",
    "expired": "ExpiredToken",
    "denied": "access denied",
    "hang up": "",
}


@pytest.mark.parametrize("kind", ["listing", "pointer"])
@pytest.mark.parametrize("fault", sorted(FAULTS))
async def test_a_fault_leaves_what_was_found_and_is_logged(
    settings: SidecarSettings,
    tmp_path: Path,
    upload: Upload,
    put: Put,
    proxy: StoreProxy,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    kind: str,
) -> None:
    version(upload, tmp_path, "step-1")
    if kind == "pointer":
        put("run/latest", b"step-1")
    watch = NewestWatch(search_of(settings), 0.05)
    looking = asyncio.create_task(watch.run())
    try:
        watch.ask()
        await seconds_until(_sees(watch, "step-1"))
        proxy.inject(fault)
        await seconds_until(_logs(caplog, FAULTS[fault]))
        version(upload, tmp_path, "step-2")
        if kind == "pointer":
            put("run/latest", b"step-2")
        assert watch.newest is not None
        assert watch.newest.version == "step-1"
        proxy.fault = ""
        await seconds_until(_sees(watch, "step-2"))
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
    assert SECRET not in caplog.text


def test_a_slow_store_is_waited_for(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, proxy: StoreProxy
) -> None:
    version(upload, tmp_path, "step-1")
    proxy.inject("latency")
    begun = time.monotonic()

    found = search_of(settings).newest(None, NOW)

    assert found is not None
    assert time.monotonic() - begun > 0.5


def test_a_fault_while_one_version_is_read_names_no_older_one(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, proxy: StoreProxy
) -> None:
    for name in ("step-1", "step-2"):
        version(upload, tmp_path, name)
    proxy.inject("error 503", only="step-2")

    with pytest.raises(SidecarError, match="the store answers 503"):
        search_of(settings).newest(None, NOW)


def test_a_fault_while_the_first_version_of_a_run_is_read_does_not_mean_the_base_model(
    settings: SidecarSettings, put: Put, proxy: StoreProxy
) -> None:
    put("run/latest", b"run-2/weight_v000000")
    proxy.inject("denied", only="weight_v000000")

    with pytest.raises(SidecarError, match="access denied"):
        search_of(settings).newest(None, NOW)


def _sees(watch: NewestWatch, name: str) -> Callable[[], Any]:
    async def sees() -> bool:
        return watch.newest is not None and watch.newest.version == name

    return sees


def _logs(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], Any]:
    async def logs() -> bool:
        errors = [str(getattr(record, "error", "")) for record in caplog.records]
        return any(text in error and error for error in errors)

    return logs
