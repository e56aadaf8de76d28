"""A client of the Kubernetes API with raw JSON, over the official client's transport.

The official client's typed models drop unknown fields and take ten times the CPU. So this uses
only its configuration, TLS and token refresh. Translates errors to errors.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import client, config

from rlfleet_operator import metrics
from rlfleet_operator.crd.fleet_spec import API_VERSION, GROUP, PLURAL
from rlfleet_operator.errors import (
    Conflict,
    Forbidden,
    Missing,
    OperatorError,
    Refused,
    Retryable,
    TooLarge,
    Unreachable,
)
from rlfleet_operator.kube.retry_after import RetryAfter

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Merges lists by key, because the kubelet writes other conditions of the same pod."""
_JSON = "application/json"
METADATA_ONLY = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Requests a list of objects with their metadata only."""
METADATA_OF_ONE = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The same of one object, for a write whose answer is not used: a pod takes 8 KiB."""
_CALL_TIMEOUT_S = 20.0
_WATCH_TIMEOUT_S = 300


class WatchEnded(Exception):  # noqa: N818 - not an error
    """The watch must start again from a list (410 Gone)."""


@dataclass(frozen=True, slots=True)
class KubeCredentials:
    """Server and credentials of a connection, with the field names of kopf.ConnectionInfo."""

    server: str
    ca_path: str | None
    insecure: bool
    scheme: str | None
    token: str | None
    certificate_path: str | None
    private_key_path: str | None
    proxy_url: str | None = None


def proxy_to(server: str) -> str | None:
    """Return the proxy to a server by HTTPS_PROXY, HTTP_PROXY and NO_PROXY; None without one."""
    at = urlsplit(server)
    if not at.hostname or proxy_bypass(at.hostname):
        return None
    return getproxies().get(at.scheme)


class KubeClient:
    """One connection to the API server."""

    def __init__(
        self,
        api: client.ApiClient,
        demand: Callable[[], None] = lambda: None,
        retry_after: RetryAfter | None = None,
    ) -> None:
        """Use a configured ApiClient; ``demand`` is called before each write and may raise."""
        self._api, self._demand = api, demand
        self._retry_after = retry_after or RetryAfter()

    @classmethod
    async def connect(cls) -> "KubeClient":
        """Connect as the pod's ServiceAccount, or by the current kubeconfig outside a cluster."""
        settings = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            await config.load_kube_config(client_configuration=settings)
        settings.connection_pool_maxsize = 64
        # With trust_env aiohttp looks for ~/.netrc and a proxy in two threads at each request.
        settings.client_session_kwargs = {"trust_env": False}
        settings.proxy = settings.proxy or proxy_to(settings.host)
        return cls(client.ApiClient(settings))

    async def credentials(self) -> KubeCredentials:
        """Return this connection's credentials, with a token that is valid now."""
        settings, headers = self._api.configuration, dict[str, str]()
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], "/", "GET", None)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return KubeCredentials(
            server=settings.host,
            ca_path=settings.ssl_ca_cert,
            insecure=not settings.verify_ssl,
            scheme=scheme or None,
            token=token or None,
            certificate_path=settings.cert_file,
            private_key_path=settings.key_file,
            proxy_url=settings.proxy,
        )

    def under(self, demand: Callable[[], None]) -> "KubeClient":
        """Return a client over the same connections that writes only while ``demand`` passes."""
        return KubeClient(self._api, demand, self._retry_after)

    async def close(self) -> None:
        """Close every connection."""
        await self._api.close()

    async def get(self, path: str, **query: str) -> Json:
        """GET an object or a list."""
        return await self._call("GET", path, query=query)

    async def pages(self, path: str, *, accept: str = _JSON, **query: str) -> AsyncIterator[Json]:
        """Yield the pages of a list; each has items and metadata, or Unreachable is raised."""
        while True:
            page = await self._call("GET", path, query=query, accept=accept)
            _demand_list(page, path)
            yield page
            if not page["metadata"].get("continue"):
                return
            query["continue"] = page["metadata"]["continue"]

    async def create(
        self, path: str, body: Json, *, accept: str = _JSON, is_trial: bool = False
    ) -> Json:
        """POST an object; raises Conflict if its name is taken, Refused for an unknown field.

        The API server checks a trial like any other object, and stores nothing.
        """
        # Strict: the API server rejects unknown fields instead of dropping them.
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if is_trial else {})
        return await self._call("POST", path, query=query, body=body, accept=accept)

    async def patch(
        self, path: str, body: Json, content_type: str = MERGE_PATCH, *, accept: str = _JSON
    ) -> Json:
        """PATCH an object; raises Conflict if the body's resourceVersion or uid is not its own."""
        return await self._call("PATCH", path, body=body, content_type=content_type, accept=accept)

    async def replace(self, path: str, body: Json) -> Json:
        """PUT an object; raises Conflict if the body's resourceVersion is outdated."""
        return await self._call("PUT", path, body=body)

    async def delete(self, path: str, uid: str) -> None:
        """Delete exactly the object with this uid."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        await self._call("DELETE", path, body=options)

    async def watch(
        self, path: str, version: str, *, silence_s: float = 150.0, **query: str
    ) -> AsyncIterator[tuple[str, Json]]:
        """Yield (type, object) after ``version`` until the server ends the watch.

        Raises Unreachable if nothing, not even a bookmark, arrives for ``silence_s``.
        """
        query |= {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_TIMEOUT_S),
        }
        headers = {"Accept": _JSON}
        response = await self._open("GET", path, query, None, headers, _WATCH_TIMEOUT_S + 30.0)
        try:
            await _raise_for(response)
            async for line in _lines(response, silence_s):
                yield _event(line)
        finally:
            _hang_up(response)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Json:
        headers = {"Content-Type": content_type, "Accept": accept}
        response = await self._open(method, path, query, body, headers, _CALL_TIMEOUT_S)
        try:
            await _raise_for(response)
            return _object(await response.read(), f"{method} {path}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        finally:
            _hang_up(response)

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        headers: dict[str, str],
        timeout_s: float,
    ) -> aiohttp.ClientResponse:
        await self._retry_after.wait()
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._api.configuration.host + path + ("?" + urlencode(query) if query else "")
        if method != "GET":
            self._demand()
        metrics.API_REQUESTS.labels(method=method).inc()
        if body is not None:
            metrics.API_BYTES.inc(len(json.dumps(body)))
        try:
            answer = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout_s
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        self._retry_after.note(answer.response.headers)
        return answer.response  # type: ignore[no-any-return]


def _hang_up(response: aiohttp.ClientResponse) -> None:
    """Close a response, and its connection unless the response was read completely.

    Aborts it: TLS shutdown waits up to 30 s for the server, and outlives the event loop.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _lines(response: aiohttp.ClientResponse, silence_s: float) -> AsyncIterator[bytes]:
    """Yield lines of any length; raises Unreachable if the stream is silent or breaks."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(silence_s):
                chunk = await response.content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"watch: {type(error).__name__}: {error}") from error
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _object(body: bytes, what: str) -> Json:
    """Parse a body; raises Unreachable if it is no JSON object, such as a proxy's error page."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        text = body[:100].decode(errors="replace")
        raise Unreachable(f"{what}: expected a JSON object, got {text!r}")
    return found


def _event(line: bytes) -> tuple[str, Json]:
    """Parse one line of a watch; raises the error that an ERROR event stands for."""
    event = _object(line, "watch")
    kind, found = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(found, dict):
        raise Unreachable(f"watch: expected type and object, got {line[:100]!r}")
    if kind == "ERROR":
        raise _watch_error(found)
    if not _has(found, *(("resourceVersion",) if kind == "BOOKMARK" else _NAMES)):
        raise Unreachable(f"watch: expected metadata in the object of {kind}, got none")
    return kind, found


_NAMES = ("name", "uid", "resourceVersion")


def _has(found: Any, *fields: str) -> bool:
    """Return whether an object's metadata has these fields as non-empty strings."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return isinstance(metadata, dict) and all(
        isinstance(metadata.get(field), str) and metadata[field] for field in fields
    )


def _demand_list(page: Json, path: str) -> None:
    """Raise Unreachable unless this is a page of a list of objects."""
    items = page.get("items")
    is_list = isinstance(items, list) and all(_has(item, *_NAMES) for item in items)
    if not is_list or not _has(page, "resourceVersion"):
        raise Unreachable(f"GET {path}: expected a list of objects, got {page.get('kind')!r:.100}")


def _watch_error(status: Json) -> Exception:
    if _ERRORS.get(status.get("code", 0)) is WatchEnded:
        return WatchEnded()
    return Unreachable(f"watch: {status.get('code')}: {status.get('message')}")


_TOO_MANY, _SERVER_ERROR = 429, 500
_ERRORS: dict[int, type[OperatorError] | type[WatchEnded]] = {
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: WatchEnded,
    413: TooLarge,
}
_TOO_LARGE = ("request is too large", "message larger than max")


async def _raise_for(response: aiohttp.ClientResponse) -> None:
    if response.ok:
        return
    try:
        text = (await response.read()).decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError):
        # The status code is enough; only the message is lost.
        text = response.reason or ""
    try:
        message = str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        message = text
    error = _error_for(response.status, message)
    raise error(f"{response.status} {_what(response)}: {message:.4096}")


def _what(response: aiohttp.ClientResponse) -> str:
    """Return the method, and of a write the object: a webhook's denial does not name it."""
    _, _, path = response.url.path.partition("/namespaces/")
    written = path.partition("/")[2] if response.method != "GET" else ""
    return f"{response.method} {written}".strip()


def _error_for(status: int, message: str) -> type[OperatorError] | type[WatchEnded]:
    # The limits of etcd and of the connection to it arrive as 500.
    if status >= _SERVER_ERROR and any(words in message for words in _TOO_LARGE):
        return TooLarge
    may_pass = status == _TOO_MANY or status >= _SERVER_ERROR
    return _ERRORS.get(status, Retryable if may_pass else Refused)


def is_newer(raw: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """Return whether this is a later state of the object, or of a new object of the same name.

    The resourceVersion is etcd's revision, which orders all objects of a kind.
    """
    return revision_of(raw) > revision_of(than)


def revision_of(raw: Mapping[str, Any]) -> int:
    """Return the resourceVersion of an object or list as a number."""
    return int(raw["metadata"]["resourceVersion"])


_GROUPS = {
    PLURAL: f"{GROUP}/{API_VERSION}",
    "leases": "coordination.k8s.io/v1",
    "poddisruptionbudgets": "policy/v1",
}
"""The API group and version of each kind outside core/v1."""


def object_path(namespace: str, kind: str, name: str = "") -> str:
    """Return the path of an object; without a name of the collection, without both of all."""
    base = f"/apis/{_GROUPS[kind]}" if kind in _GROUPS else "/api/v1"
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{scope}/{kind}" + (f"/{name}" if name else "")


def fleet_path(namespace: str, name: str = "") -> str:
    """Return the path of a fleet, with the same defaults."""
    return object_path(namespace, PLURAL, name)
