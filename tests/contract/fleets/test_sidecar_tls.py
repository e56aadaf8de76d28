"""Sidecars that speak HTTPS: the operator's client, a new CA, and a trainer."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rlfleet_contract.tls import CA_KEY
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.manifests.sidecar_tls import server_name
from rlfleet_operator.errors import Missing, OperatorError, Refused, Retryable, Unreachable
from rlfleet_operator.workers.certificate import ReadCA, SidecarCertificates
from rlfleet_operator.workers.client import WorkerClient, client_of
from rlfleet_operator.workers.pool import WorkerPool
from rlfleet_operator.workers.requests import DrivenFleet
from tests import workers
from tests.certificates import Authority, mounted
from tests.contract.conftest import TOKEN, settled
from tests.fakes.serving import Listener
from tests.fakes.worker import Worker
from tests.patience import seconds_until

KEY = ("rl", "qwen")
NAME = server_name("qwen", "rl")
SECRET = "qwen-tls"


class Secrets:
    """The CA in a Secret, or the error of reading it."""

    def __init__(self, ca: str) -> None:
        self.ca, self.reads = ca, 0
        self.error: OperatorError | None = None

    async def read(self, namespace: str, name: str) -> str:
        assert (namespace, name) == (KEY[0], SECRET)
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.ca


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def mount(authority: Authority, tmp_path: Path) -> Path:
    # Tests connect to the address itself.
    return mounted(tmp_path / "tls", authority.secret(NAME, "127.0.0.1"))


@pytest.fixture
async def secure(mount: Path, tmp_path: Path, model: Path, weights: Path) -> AsyncIterator[Worker]:
    ports: dict[str, Any] = {"engine_port": 0, "admin_port": 0, "poll_s": 0.05, "probe_tokens": 2}
    worker = Worker(
        "127.0.0.1", model, weights, TOKEN, tmp_path / "pod", tls_dir=mount, tls_name=NAME, **ports
    )
    async with worker:
        await settled(worker, lambda report: report.stage is Stage.CLOSED)
        yield worker


def operators_client(worker: Worker, read: ReadCA, key: tuple[str, str] = KEY) -> WorkerClient:
    return client_with(worker, SidecarCertificates(read, 0.0), key)


def client_with(
    worker: Worker, certificates: SidecarCertificates, key: tuple[str, str] = KEY
) -> WorkerClient:
    address = httpx.URL(worker.admin_url)
    pod = workers.pod(0, address=address.host, tls_secret=SECRET)
    assert address.port is not None
    return client_of(pod, address.port, asyncio.Semaphore(4), certificates.of(key, pod))


async def test_the_operator_drives_a_sidecar_over_https(
    secure: Worker, authority: Authority
) -> None:
    client = operators_client(secure, Secrets(authority.pem).read)

    report = await client.command(TOKEN, PrepareRequest(operation="o", version="step-1"))
    async for news in client.watch(TOKEN):
        assert news is not None
        assert news.prepared == "step-1"
        break
    await client.close()

    assert report.prepared == "step-1"
    assert secure.admin_url.startswith("https://")


async def test_few_bytes_arrive_at_once_over_https(authority: Authority, mount: Path) -> None:
    """A socket that waits for more could keep the end of a record, and a report with it."""

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"\n", "more_body": True})
            await asyncio.sleep(1)

    listener = Listener(watched, "127.0.0.1", 0, mount)
    await listener.start()
    pod = workers.pod(0, address="127.0.0.1", tls_secret=SECRET)
    certificate = SidecarCertificates(Secrets(authority.pem).read, 0.0).of(KEY, pod)
    client = client_of(pod, listener.port, asyncio.Semaphore(4), certificate)

    signs = 0
    async with asyncio.timeout(6):
        async for news in client.watch(TOKEN):
            assert news is None
            signs += 1
            if signs == 3:
                break

    await client.close()
    await listener.stop()


@pytest.mark.parametrize(
    ("key", "ca", "expected"),
    [
        (("rl", "another"), None, "TLSError: .*Hostname mismatch"),
        (KEY, Authority().pem, "TLSError: .*certificate signature failure"),
    ],
    ids=["another fleet's name", "another CA"],
)
async def test_a_server_that_is_not_the_fleet_s_gets_no_token(
    secure: Worker, authority: Authority, key: tuple[str, str], ca: str | None, expected: str
) -> None:
    client = operators_client(secure, Secrets(ca or authority.pem).read, key=key)

    with pytest.raises(Unreachable, match=expected):
        await client.state(TOKEN)
    await client.close()


async def test_plain_http_gets_no_reply_from_it(secure: Worker) -> None:
    client = WorkerClient(f"http://{secure.admin_url.rpartition('//')[2]}", asyncio.Semaphore(4))

    with pytest.raises(Unreachable):
        await client.state(TOKEN)
    await client.close()


async def test_a_new_ca_is_used_for_new_connections(
    secure: Worker, authority: Authority, mount: Path
) -> None:
    secrets = Secrets(authority.pem)
    certificates = SidecarCertificates(secrets.read, 0.0)
    answers = []

    async def is_trusted() -> bool:
        # A client of its own: a connection that is kept says nothing about the new certificate.
        client = client_with(secure, certificates)
        try:
            await client.state(TOKEN)
        except Unreachable:
            answers.append(False)
        else:
            answers.append(True)
        finally:
            await client.close()
        return answers[-1]

    assert await is_trusted()
    after = Authority()
    mounted(mount, after.secret(NAME, "127.0.0.1"))
    secrets.ca = after.pem
    await seconds_until(is_trusted)

    # The CA of before does not vouch for the new certificate.
    assert answers[1] is False


async def test_a_ca_is_read_once_a_while_and_kept_while_it_cannot_be_read(
    authority: Authority,
) -> None:
    pod = workers.pod(0, tls_secret=SECRET)
    secrets = Secrets(authority.pem)
    rarely = SidecarCertificates(secrets.read, 60.0).of(KEY, pod)
    often = SidecarCertificates(secrets.read, 0.0).of(KEY, pod)
    assert rarely is not None
    assert often is not None

    found = {id(await rarely.context()) for _ in range(3)}
    assert (secrets.reads, len(found)) == (1, 1)

    known = await often.context()
    for error in (Retryable("the API server does not answer"), Missing("deleted"), None):
        secrets.error = error
        await often.context()
        await asyncio.sleep(0.01)
        # Without an error too: connections are used again while the CA is the same.
        assert await often.context() is known
    secrets.ca = Authority().pem
    await often.context()
    await asyncio.sleep(0.01)
    assert await often.context() is not known


async def test_no_request_waits_for_an_api_server_that_hangs(authority: Authority) -> None:
    secrets = Secrets(authority.pem)
    hanging = asyncio.Event()

    async def read(namespace: str, name: str) -> str:
        if secrets.reads:
            await hanging.wait()
        return await secrets.read(namespace, name)

    certificate = SidecarCertificates(read, 0.0).of(KEY, workers.pod(0, tls_secret=SECRET))
    assert certificate is not None
    known = await certificate.context()

    async with asyncio.timeout(5):
        assert await certificate.context() is known
    hanging.set()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("ca", "error", "expected"),
    [
        ("", Missing("Secret qwen-tls does not exist"), "Secret qwen-tls does not exist"),
        ("none", None, "Secret qwen-tls: data.ca.crt holds no certificate .* expected PEM"),
        ("\ufffd0\x82", None, "Secret qwen-tls: data.ca.crt holds no certificate"),
    ],
    ids=["no Secret", "no certificate", "DER"],
)
async def test_without_a_ca_nothing_is_sent(
    secure: Worker, ca: str, error: OperatorError | None, expected: str
) -> None:
    secrets = Secrets(ca)
    secrets.error = error
    client = operators_client(secure, secrets.read)

    with pytest.raises(Refused, match=expected):
        await client.state(TOKEN)
    await client.close()


def test_a_pod_without_the_volume_is_asked_over_http(authority: Authority) -> None:
    assert SidecarCertificates(Secrets(authority.pem).read).of(KEY, workers.pod()) is None


async def test_a_pool_reaches_both_kinds_of_pods(
    secure: Worker, fake: Worker, authority: Authority
) -> None:
    """As in a fleet that changes to TLS: each pod's own volume counts."""
    certificates = SidecarCertificates(Secrets(authority.pem).read)

    async def token() -> str:
        return TOKEN

    for worker, secret in ((secure, SECRET), (fake, None)):
        address = httpx.URL(worker.admin_url)
        assert address.port is not None
        pods = {"qwen-0": workers.pod(0, address=address.host, tls_secret=secret)}
        pool = WorkerPool(
            asyncio.Semaphore(4),
            0.05,
            lambda: None,
            token,
            token,
            lambda: DrivenFleet("f-1", 1),
            lambda: 1,
            certificate=lambda pod: certificates.of(KEY, pod),
        )
        await pool.follow(pods, address.port)

        await seconds_until(is_reached(pool, pods))
        await pool.close()


def is_reached(pool: WorkerPool, pods: dict[str, Any]) -> Callable[[], Any]:
    async def reached() -> bool:
        return pool.worker("qwen-0", 0, pods["qwen-0"]).reachable

    return reached


async def test_discovery_names_https(secure: Worker, mount: Path) -> None:
    context = ssl.create_default_context(cafile=mount / CA_KEY)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(verify=context, trust_env=False, headers=headers) as trainer:
        found = (await trainer.get(f"{secure.admin_url}/v1/rl/workers")).json()

    [worker] = found["workers"]
    assert worker["admin_base_url"] == worker["system_url"] == secure.admin_url
