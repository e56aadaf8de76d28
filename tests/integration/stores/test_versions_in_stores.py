"""Versions in a real S3 server: right bytes or a clear refusal, whatever happens on the way."""

import time
from pathlib import Path
from typing import Any

import pytest

from dev.s3 import server
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from tests.fakes.checkpoints import (
    CORRUPTIONS,
    MARKER,
    SHAPES,
    spoil,
    write_file,
    write_manifest,
    write_shards,
    write_version,
)
from tests.fakes.memory import digest_of
from tests.integration.stores.conftest import Upload
from tests.integration.stores.proxy import SECRET, StoreProxy

pytestmark = pytest.mark.integration
VERSION = "step-1"
OF_A_FILE_SYSTEM = {"a linked file", "a linked directory", "a pipe", "marks of being written again"}
"""Defects that an object cannot have, or that take two uploads."""


def prepared(settings: SidecarSettings, version: str = VERSION, **request: Any) -> Checkpoint:
    """Prepare a version in a new sidecar."""
    store = VersionStore(settings, Checkpoints(settings))
    asked = PrepareRequest(operation="o", version=version, **request)
    store.prepare(PrepareJob(version, 60), asked, frozenset)
    return store.demand(version)


def refusal(settings: SidecarSettings, version: str = VERSION, **request: Any) -> SidecarError:
    with pytest.raises(SidecarError) as caught:
        prepared(settings, version, **request)
    assert SECRET not in caught.value.message
    assert not list((settings.cache_dir or Path()).glob("versions/*/*.safetensors"))
    return caught.value


def demand_same(found: Checkpoint, source: Path) -> None:
    """Raise unless the copy has the source's bytes, and their digest."""
    names = sorted(path.name for path in source.glob("*.safetensors"))
    assert sorted(stamp.name for stamp in found.files) == names
    for name in names:
        assert (found.directory / name).read_bytes() == (source / name).read_bytes()
    assert found.digest == digest_of(source)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_version(tmp_path / "trainer", VERSION, seed=1, shards=3)


@pytest.fixture
def version(source: Path, upload: Upload) -> str:
    return upload(source)


def test_a_version_is_read_from_s3(settings: SidecarSettings, source: Path, version: str) -> None:
    demand_same(prepared(settings), source)


def test_one_file_larger_than_a_range_is_read_in_parts(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, proxy: StoreProxy
) -> None:
    shapes = dict.fromkeys(SHAPES, (3072, 3072))
    model = tmp_path / "model"
    write_file(model / "model.safetensors", shapes, seed=0)
    directory = tmp_path / "trainer" / VERSION
    directory.mkdir(parents=True)
    write_file(directory / "model.safetensors", shapes, seed=3)
    (directory / MARKER).touch()
    upload(directory)

    demand_same(prepared(settings), directory)
    reads = [line for line in proxy.seen if line.startswith("GET") and "model.safetensors" in line]
    assert len(reads) >= 5


def test_the_base_model_needs_no_store(settings: SidecarSettings, proxy: StoreProxy) -> None:
    assert prepared(settings, BASE_VERSION).directory == settings.model_path
    assert proxy.seen == []


def test_a_manifest_is_compared(settings: SidecarSettings, source: Path, upload: Upload) -> None:
    digest = write_manifest(source)
    upload(source)

    assert prepared(settings, digest=digest).manifest == digest
    wrong = "sha256:" + "0" * 64
    assert refusal(with_another_cache(settings), digest=wrong).code is Code.DIGEST_MISMATCH


def with_another_cache(settings: SidecarSettings) -> SidecarSettings:
    """Return them with an empty cache."""
    directory = settings.cache_dir or Path()
    return settings.model_copy(update={"cache_dir": directory.with_name("other-cache")})


def test_a_version_that_is_not_there_is_waited_for(settings: SidecarSettings) -> None:
    found = refusal(settings, "step-404")

    assert (found.code, found.code.retryable) == (Code.VERSION_NOT_FOUND, True)
    assert f"{settings.weights_source}".replace("{version}", "step-404") in found.message


def test_a_version_without_its_marker_is_waited_for(
    settings: SidecarSettings, source: Path, upload: Upload
) -> None:
    (source / MARKER).unlink()
    upload(source)

    assert refusal(settings).code is Code.CHECKPOINT_INCOMPLETE


@pytest.mark.parametrize("defect", sorted(CORRUPTIONS.keys() - OF_A_FILE_SYSTEM))
def test_a_bad_version_is_rejected_as_on_a_volume(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, defect: str
) -> None:
    source = write_version(tmp_path / "bad", VERSION, seed=1)
    spoil(source, defect)
    upload(source)

    assert refusal(settings).code == CORRUPTIONS[defect][0]


def test_a_bucket_that_is_not_there_is_named(settings: SidecarSettings, version: str) -> None:
    other = settings.model_copy(update={"weights_source": "s3://no-such-bucket/{version}"})

    found = refusal(other)
    assert found.code is Code.CHECKPOINT_UNREADABLE
    assert found.message.startswith("s3://no-such-bucket does not exist; create the bucket")


def test_a_rewritten_version_is_prepared_again(
    settings: SidecarSettings, source: Path, upload: Upload, version: str
) -> None:
    checkpoints = Checkpoints(settings)
    store = VersionStore(settings, checkpoints)
    asked = PrepareRequest(operation="o", version=VERSION)
    assert store.prepare(PrepareJob(VERSION, 60), asked, frozenset)
    assert not store.prepare(PrepareJob(VERSION, 60), asked, frozenset)

    write_shards(source, 2, 3)
    upload(source)

    assert store.prepare(PrepareJob(VERSION, 60), asked, frozenset)
    demand_same(store.demand(VERSION), source)


def test_an_object_that_is_replaced_between_two_reads_is_seen(
    settings: SidecarSettings, source: Path, upload: Upload, proxy: StoreProxy, version: str
) -> None:
    name = max(source.glob("*.safetensors")).name
    reads = 0

    def replace(request: Any) -> None:
        nonlocal reads
        reads += request.method == "GET" and name in request.path
        if reads == 2:
            reads += 1
            write_shards(source, 2, 3)
            upload(source)

    proxy.before = replace

    found = refusal(settings)
    assert found.code is Code.CHECKPOINT_INVALID
    assert "was written again after its check" in found.message


PASSING = ("latency", "error 500", "error 503", "too many", "half", "hang up")
"""Faults at the first two requests, of which one is the listing."""


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_costs_only_time(
    settings: SidecarSettings, source: Path, proxy: StoreProxy, version: str, fault: str
) -> None:
    proxy.inject(fault, most=2)

    demand_same(prepared(settings), source)
    assert proxy.struck == 2


def test_slow_replies_cost_only_time(
    settings: SidecarSettings, source: Path, proxy: StoreProxy, version: str
) -> None:
    proxy.inject("slow", only="GET")

    demand_same(prepared(settings), source)


LASTING = {
    "expired": (Code.CHECKPOINT_UNREADABLE, "400 ExpiredToken"),
    "denied": (Code.CHECKPOINT_UNREADABLE, "403 AccessDenied"),
    "redirect": (Code.CHECKPOINT_UNREADABLE, "another region"),
    "other tag": (Code.CHECKPOINT_INVALID, "was written again after its check"),
}


@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.parametrize("only", ["", "GET /{bucket}/run"])
def test_a_fault_that_lasts_is_a_refusal_that_says_why(
    settings: SidecarSettings,
    proxy: StoreProxy,
    bucket: str,
    version: str,
    fault: str,
    only: str,
) -> None:
    code, words = LASTING[fault]
    proxy.inject(fault, only=only.format(bucket=bucket))

    found = refusal(settings)
    assert found.code is code
    assert words in found.message
    assert f"s3://{bucket}" in found.message


@pytest.mark.parametrize("fault", ["error 503", "hang up", "half"])
def test_a_store_that_stays_broken_is_given_up(
    settings: SidecarSettings,
    proxy: StoreProxy,
    version: str,
    fault: str,
) -> None:
    proxy.inject(fault, only="GET")

    found = refusal(settings.model_copy(update={"store_retry_s": 1}))
    assert found.code is Code.CHECKPOINT_UNREADABLE
    assert "s3://" in found.message


def test_new_credentials_are_read_without_a_restart(
    settings: SidecarSettings, credentials: Path, source: Path, s3: server.Server, version: str
) -> None:
    (credentials / "AWS_SECRET_ACCESS_KEY").write_text("wrong")
    store = VersionStore(settings, Checkpoints(settings))
    asked = PrepareRequest(operation="o", version=VERSION)
    with pytest.raises(SidecarError, match="403 SignatureDoesNotMatch") as caught:
        store.prepare(PrepareJob(VERSION, 60), asked, frozenset)
    assert s3.secret_key not in caught.value.message
    assert "wrong" not in caught.value.message

    (credentials / "AWS_SECRET_ACCESS_KEY").write_text(s3.secret_key)

    store.prepare(PrepareJob(VERSION, 60), asked, frozenset)
    demand_same(store.demand(VERSION), source)


def test_a_secret_that_is_not_there_is_named(
    settings: SidecarSettings, credentials: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in credentials.iterdir():
        path.unlink()
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9/169.254.169.254")

    found = refusal(settings.model_copy(update={"store_retry_s": 1}))
    assert "no credentials found; set weights.source" in found.message


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:9", "is not reachable"),
        ("http://store.invalid", "host name is not known"),
    ],
)
def test_a_store_that_is_not_there_is_named(
    settings: SidecarSettings, endpoint: str, words: str
) -> None:
    other = settings.model_copy(update={"store_endpoint": endpoint, "store_retry_s": 1})

    found = refusal(other)
    assert found.code is Code.CHECKPOINT_UNREADABLE
    assert words in found.message


def test_a_superseded_prepare_ends_while_it_reads(
    settings: SidecarSettings, proxy: StoreProxy, version: str
) -> None:
    proxy.inject("slow", only="GET")
    work = PrepareJob(VERSION, 60)
    proxy.before = lambda request: (
        work.supersede("superseded by a prepare of step-2")
        if "safetensors" in request.path and len(proxy.seen) > 4
        else None
    )
    store = VersionStore(settings, Checkpoints(settings))
    begun = time.monotonic()

    with pytest.raises(SidecarError, match="superseded"):
        store.prepare(work, PrepareRequest(operation="o", version=VERSION), frozenset)
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    "source_url", ["s3://{bucket}/run/{{version}}", "gs://{bucket}/run/{{version}}"]
)
def test_a_public_bucket_is_read_without_credentials(
    settings: SidecarSettings,
    source: Path,
    s3: server.Server,
    bucket: str,
    version: str,
    source_url: str,
) -> None:
    s3.make_public(bucket)
    other = {
        "weights_source": source_url.format(bucket=bucket),
        "store_credentials": None,
        "store_anonymous": True,
    }

    demand_same(prepared(settings.model_copy(update=other)), source)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_version_is_read_from_a_server_that_lists_nothing(
    settings: SidecarSettings,
    tmp_path: Path,
    s3: server.Server,
    bucket: str,
    proxy: StoreProxy,
    upload: Upload,
    shards: int,
) -> None:
    source = write_version(tmp_path / "http", VERSION, seed=5, shards=shards)
    upload(source)
    s3.make_public(bucket)
    url = f"{proxy.url}/{bucket}/run/{{version}}"
    other = {"weights_source": url, "store_endpoint": "", "store_credentials": None}

    demand_same(prepared(settings.model_copy(update=other)), source)
    assert not any("list-type" in line for line in proxy.seen)


def test_a_server_that_ignores_ranges_is_named(
    settings: SidecarSettings, proxy: StoreProxy, s3: server.Server, bucket: str, version: str
) -> None:
    s3.make_public(bucket)
    proxy.inject("no range", only="GET")
    url = f"{proxy.url}/{bucket}/run/{{version}}"
    other = {"weights_source": url, "store_endpoint": "", "store_credentials": None}

    found = refusal(settings.model_copy(update=other))
    assert found.code is Code.CHECKPOINT_UNREADABLE
    assert "its server ignores ranges" in found.message


def test_what_a_server_that_lists_nothing_lacks_is_waited_for(
    settings: SidecarSettings, proxy: StoreProxy, s3: server.Server, bucket: str
) -> None:
    s3.make_public(bucket)
    url = f"{proxy.url}/{bucket}/run/{{version}}"
    other = {"weights_source": url, "store_endpoint": "", "store_credentials": None}

    assert refusal(settings.model_copy(update=other)).code is Code.VERSION_NOT_FOUND
