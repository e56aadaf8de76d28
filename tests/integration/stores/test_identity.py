"""The pod's identity instead of a Secret, as EKS, IRSA and GKE give it to a container.

The services are ours: versitygw rejects session tokens, which all of these hand out.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest

from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.stores.client import StoreClient
from rlfleet_sidecar.stores.url import StoreUrl
from tests.fakes.threaded_server import threaded

pytestmark = pytest.mark.integration
ROLE = "arn:aws:iam::111122223333:role/reader"
NEVER = "2099-01-01T00:00:00Z"
_OF_THE_ROLE = (
    "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
    "<AccessKeyId>key-of-role</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
    f"<SessionToken>session-of-role</SessionToken><Expiration>{NEVER}</Expiration>"
    "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
)
_OF_THE_POD = {
    "AccessKeyId": "key-of-pod",
    "SecretAccessKey": "s",
    "Token": "session-of-pod",
    "Expiration": NEVER,
}
_OF_GOOGLE = {"access_token": "of-google", "expires_in": 3600, "token_type": "Bearer"}
ANSWERS = {
    "/": _OF_THE_ROLE,
    "/v1/credentials": json.dumps(_OF_THE_POD),
    "/computeMetadata/v1/instance/service-accounts/default/token": json.dumps(_OF_GOOGLE),
}
"""What hands out keys, by path; every other path is an empty bucket."""
EMPTY = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@dataclass
class Request:
    """What one of the services was asked."""

    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]


@contextmanager
def serving(asked: list[Request], certificate: Path | None = None) -> Iterator[str]:
    """Serve all of them, over TLS with a certificate; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): text for name, text in self.headers.items()}
            asked.append(Request(parts.path, parse_qs(parts.query), headers))
            body = ANSWERS.get(parts.path, EMPTY).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
    if tls and certificate:
        tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with threaded(Handler, tls=tls) as url:
        yield url


def listed(settings: SidecarSettings, url: str, **other: Any) -> None:
    """List a bucket as a prepare does."""
    opened = StoreClient(settings.model_copy(update=other), StoreUrl.of(url)).open()
    assert obstore.list(opened.store).collect() == []


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """Return a service account's token, as the kubelet projects it."""
    path = tmp_path / "token"
    path.write_text("of-the-service-account")
    return path


def test_eks_pod_identity(
    settings: SidecarSettings, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []
    with serving(asked) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))

        listed(settings, "s3://b/run", store_endpoint=url, store_credentials=None)

    keys, store = asked
    assert keys.headers["authorization"] == "of-the-service-account"
    assert "Credential=key-of-pod/" in store.headers["authorization"]
    assert store.headers["x-amz-security-token"] == "session-of-pod"


def test_irsa_with_a_secret_that_holds_a_ca_alone(
    settings: SidecarSettings,
    token: Path,
    certificate: Path,
    credentials: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for path in credentials.iterdir():
        path.unlink()
    (credentials / "ca.crt").write_text(certificate.read_text())
    asked: list[Request] = []
    with serving(asked, certificate) as url:
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)

        listed(settings, "s3://b/run", store_endpoint=url)

    keys, store = asked
    assert keys.query["RoleArn"] == [ROLE]
    assert keys.query["WebIdentityToken"] == ["of-the-service-account"]
    assert "Credential=key-of-role/" in store.headers["authorization"]
    assert "/eu-west-1/s3/" in store.headers["authorization"], "IRSA's webhook sets the region"
    assert store.headers["x-amz-security-token"] == "session-of-role"


def test_gke_s_metadata_server(settings: SidecarSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Request] = []
    with serving(asked) as url:
        monkeypatch.setenv("GCE_METADATA_HOST", url.removeprefix("http://"))

        listed(settings, "gs://b/run", store_endpoint=url, store_credentials=None)

    keys, store = asked
    assert keys.headers["metadata-flavor"] == "Google"
    assert store.headers["authorization"] == "Bearer of-google"
