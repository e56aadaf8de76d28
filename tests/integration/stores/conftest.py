"""A real S3 server, with a proxy before it that injects faults."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import obstore
import pytest
from obstore.store import S3Store

from dev import steps
from dev.s3 import server
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.checkpoints import write_model
from tests.integration.stores.proxy import SECRET, StoreProxy, proxied

Upload = Callable[..., str]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    steps.run(server.build_steps())
    with server.running(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


@pytest.fixture
def bucket(s3: server.Server) -> str:
    name = f"b-{uuid4().hex[:12]}"
    s3.bucket(name)
    return name


@pytest.fixture
def proxy(s3: server.Server) -> Iterator[StoreProxy]:
    with proxied(s3.url) as running:
        yield running


def store_of(s3: server.Server, bucket: str, prefix: str | None = None) -> S3Store:
    """Return a bucket for a trainer, past the proxy."""
    return S3Store(
        bucket,
        prefix=prefix,
        endpoint=s3.url,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        client_options={"allow_http": True},
    )


@pytest.fixture
def store(s3: server.Server, bucket: str) -> S3Store:
    return store_of(s3, bucket)


@pytest.fixture
def upload(store: S3Store) -> Upload:
    """Put a version's files into the bucket, the marker last."""

    def put(directory: Path, prefix: str = "run") -> str:
        for path in sorted(directory.iterdir(), key=lambda one: one.suffix == ""):
            obstore.put(store, f"{prefix}/{directory.name}/{path.name}", path.read_bytes())
        return directory.name

    return put


@pytest.fixture
def credentials(tmp_path: Path, s3: server.Server) -> Path:
    """Return the Secret as it is mounted."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "AWS_ACCESS_KEY_ID").write_text(s3.access_key)
    (folder / "AWS_SECRET_ACCESS_KEY").write_text(f"{s3.secret_key}\n")
    return folder


@pytest.fixture
def settings(
    tmp_path: Path, bucket: str, credentials: Path, proxy: StoreProxy
) -> Iterator[SidecarSettings]:
    assert SECRET
    yield SidecarSettings(
        model_name="fake",
        model_path=write_model(tmp_path / "model"),
        weights_source=f"s3://{bucket}/run/{{version}}",
        store_endpoint=proxy.url,
        store_credentials=credentials,
        cache_dir=tmp_path / "cache",
        cache_spare=0,
    )
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a certificate of its own authority; its key is next to it."""
    path = tmp_path / "tls.crt"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += [
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=store",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    words += ["-addext", "basicConstraints=critical,CA:FALSE"]
    words += ["-keyout", str(tmp_path / "tls.key"), "-out", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path
