"""Where the API server is, and by which right: the pod's ServiceAccount, or a kubeconfig.

In a pod nothing but httpx is needed: the kubelet mounts three files. A kubeconfig, with every
login that it may name, is the official client's, which is an extra for that reason.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rlfleet.fleet.errors import FleetError
from rlfleet.fleet.settings import api_server

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's ServiceAccount."""


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """A connection to an API server."""

    server: str
    namespace: str
    """That of the pod, or of the kubeconfig's context."""
    verify: ssl.SSLContext
    authorization: Callable[[], str | None]
    """Return the header's value at this moment."""
    proxy: str | None = None
    server_name: str | None = None
    """What the server's certificate must be valid for, if that is not its host."""


def access_of(kubeconfig: Path | str | None, context: str | None) -> KubeAccess:
    """Return the pod's own access; outside a pod, or if one is named, that of a kubeconfig.

    Raises FleetError if there is neither.
    """
    server = api_server()
    if kubeconfig is None and context is None and server and SERVICE_ACCOUNT.is_dir():
        return _of_pod(server)
    return _of_kubeconfig(kubeconfig, context)


def _of_pod(server: str) -> KubeAccess:
    def authorization() -> str:
        # At each request: the kubelet replaces the token before it expires.
        return f"Bearer {_read('token')}"

    return KubeAccess(
        server=server,
        namespace=_read("namespace"),
        verify=ssl.create_default_context(cadata=_read("ca.crt")),
        authorization=authorization,
    )


def _read(name: str) -> str:
    path = SERVICE_ACCOUNT / name
    try:
        return path.read_text().strip()
    except OSError as error:
        raise FleetError(
            f"cannot read {path}: {error.strerror}; give the pod a ServiceAccount with"
            " automountServiceAccountToken: true, and a user that may read it"
        ) from error


def _of_kubeconfig(path: Path | str | None, context: str | None) -> KubeAccess:
    try:
        from kubernetes import client, config  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise FleetError(
            "no ServiceAccount is mounted here, and a kubeconfig needs the package kubernetes:"
            " pip install 'rlfleet[kubeconfig]'; in a pod set automountServiceAccountToken: true"
        ) from error
    settings, file = client.Configuration(), None if path is None else str(path)
    try:
        config.load_kube_config(file, context, client_configuration=settings)
        every, current = config.list_kube_config_contexts(file)
    except config.ConfigException as error:
        raise FleetError(f"no ServiceAccount is mounted here, and no kubeconfig: {error}") from None
    chosen = next((one for one in every if one["name"] == context), current)
    return KubeAccess(
        server=settings.host,
        namespace=chosen["context"].get("namespace") or "default",
        verify=_context_of(settings),
        # Asks a login plugin again once its token has expired.
        authorization=lambda: settings.get_api_key_with_prefix("BearerToken"),
        proxy=settings.proxy,
        server_name=settings.tls_server_name,
    )


def _context_of(settings: Any) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        made.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


class KubeAuth(httpx.Auth):
    """Puts the present token into each request."""

    def __init__(self, access: KubeAccess) -> None:
        self._access = access

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Read the token here."""
        yield self._signed(request, self._access.authorization())

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Read it in a thread: a kubeconfig may run a program for it."""
        yield self._signed(request, await asyncio.to_thread(self._access.authorization))

    def _signed(self, request: httpx.Request, authorization: str | None) -> httpx.Request:
        if authorization:
            request.headers["Authorization"] = authorization
        if self._access.server_name:
            request.extensions["sni_hostname"] = self._access.server_name
        return request
