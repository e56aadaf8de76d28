"""A store behind TLS, whose certificate a private CA signed."""

from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from dev.s3 import server
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.checkpoints import write_version
from tests.integration.stores.test_versions_in_stores import (
    VERSION,
    demand_same,
    prepared,
    refusal,
    with_another_cache,
)

pytestmark = pytest.mark.integration


def test_a_private_ca_is_trusted_by_its_certificate_alone(
    settings: SidecarSettings, tmp_path: Path, credentials: Path, certificate: Path
) -> None:
    source = write_version(tmp_path / "trainer", VERSION, seed=7)
    key = certificate.with_suffix(".key")
    with server.running(tmp_path / "data", certificate=certificate, key=key) as secure:
        secure.bucket("safe")
        store = S3Store(
            "safe",
            endpoint=secure.url,
            access_key_id=secure.access_key,
            secret_access_key=secure.secret_key,
            client_options={"root_certificate": certificate.read_text()},
        )
        for path in source.iterdir():
            obstore.put(store, f"{VERSION}/{path.name}", path.read_bytes())
        (credentials / "AWS_SECRET_ACCESS_KEY").write_text(secure.secret_key)
        (credentials / "ca.crt").write_text(certificate.read_text())
        place = {"weights_source": "s3://safe/{version}", "store_endpoint": secure.url}
        there = settings.model_copy(update={**place, "store_retry_s": 1})

        demand_same(prepared(there), source)

        (credentials / "ca.crt").unlink()
        assert (
            "TLS failed; put the store's CA as ca.crt" in refusal(with_another_cache(there)).message
        )
