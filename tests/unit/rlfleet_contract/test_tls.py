"""Certificates on real sockets: which are accepted, and which is presented after a renewal."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rlfleet_contract.tls import (
    CA_KEY,
    CERTIFICATE_KEY,
    PRIVATE_KEY,
    serving_context,
    verifying_context,
)
from tests.certificates import Authority, mounted

NAME = "qwen-workers.rl.svc"


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[int]:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0, ssl=serving_context(folder))
    async with server:
        yield server.sockets[0].getsockname()[1]


async def presented(port: int, ca: str, name: str = NAME) -> bytes:
    """Return the certificate that a server presents; raises SSLError for one that is refused."""
    context = verifying_context(ca)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found
    finally:
        writer.close()


def as_der(secret: dict[str, str]) -> bytes:
    return ssl.PEM_cert_to_DER_cert(secret[CERTIFICATE_KEY])


async def test_a_renewed_certificate_is_presented_without_a_restart(tmp_path: Path) -> None:
    authority = Authority()
    first, second = authority.secret(NAME), authority.secret(NAME)
    async with serving(mounted(tmp_path, first)) as port:
        before = await presented(port, authority.pem)
        mounted(tmp_path, second)
        after = await presented(port, authority.pem)

    assert (before, after) == (as_der(first), as_der(second))


async def test_a_pair_that_is_half_replaced_leaves_the_former_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    first, second = authority.secret(NAME), authority.secret(NAME)
    async with serving(mounted(tmp_path, first)) as port:
        mounted(tmp_path, second, [CERTIFICATE_KEY])
        half = await presented(port, authority.pem)
        await presented(port, authority.pem)
        mounted(tmp_path, second, [PRIVATE_KEY])
        whole = await presented(port, authority.pem)

    assert (half, whole) == (as_der(first), as_der(second))
    assert caplog.text.count("Failed to load a new certificate") == 1


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("another CA", "certificate signature failure"),
        ("another name", "Hostname mismatch"),
        ("no longer valid", "certificate has expired"),
    ],
)
async def test_a_certificate_that_does_not_fit_is_refused(
    tmp_path: Path, what: str, expected: str
) -> None:
    authority = Authority()
    ca = Authority().pem if what == "another CA" else authority.pem
    name = "qwen-workers.another.svc" if what == "another name" else NAME
    hour = dt.timedelta(hours=1)
    secret = authority.secret(NAME, valid_for=-hour if what == "no longer valid" else hour)
    async with serving(mounted(tmp_path, secret)) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match=expected):
            await presented(port, ca, name)


@pytest.mark.parametrize("missing", [CERTIFICATE_KEY, PRIVATE_KEY])
def test_a_server_does_not_start_without_its_pair(tmp_path: Path, missing: str) -> None:
    secret = Authority().secret(NAME)
    mounted(tmp_path, secret, [key for key in secret if key != missing])

    with pytest.raises(OSError, match=r"tls.crt and tls.key are no usable pair: .*; replace the"):
        serving_context(tmp_path)


@pytest.mark.parametrize("ca", ["no certificate", "", "\ufffd\ufffd0\x82"])
def test_a_ca_that_is_none_is_an_error(ca: str) -> None:
    with pytest.raises(OSError, match=r"not enough data|no start line|PEM|Empty"):
        verifying_context(ca)


async def test_a_bundle_may_have_comments_in_any_language(tmp_path: Path) -> None:
    authority = Authority()
    secret = authority.secret(NAME)
    async with serving(mounted(tmp_path, secret)) as port:
        assert await presented(port, f"# Zertifizierungsstelle für Büros\n{authority.pem}")


async def test_an_intermediate_ca_without_its_root_is_enough(tmp_path: Path) -> None:
    intermediate = Authority(Authority())
    secret = intermediate.secret(NAME)
    async with serving(mounted(tmp_path, secret)) as port:
        assert await presented(port, intermediate.pem) == as_der(secret)


def test_a_server_needs_no_ca(tmp_path: Path) -> None:
    secret = Authority().secret(NAME)
    mounted(tmp_path, secret, [key for key in secret if key != CA_KEY])

    assert serving_context(tmp_path).verify_mode is ssl.CERT_NONE
