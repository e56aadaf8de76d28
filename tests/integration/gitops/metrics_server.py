"""An external metrics API like prometheus-adapter's and KEDA's; a test sets the number."""

import json
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
PATH = f"/apis/{GROUP}/{VERSION}"


class Metrics:
    """The value of every metric, and which were asked for."""

    def __init__(self) -> None:
        self.waiting = 0
        self.asked: set[tuple[str, str]] = set()

    async def _list(self, _: web.Request) -> web.Response:
        kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return web.json_response(kind | {"resources": []})

    async def _value(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.asked.add((name, request.query.get("labelSelector", "")))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": now,
            "value": str(self.waiting),
        }
        kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}"}
        return web.json_response(kind | {"metadata": {}, "items": [item]})

    @asynccontextmanager
    async def serving(self, folder: Path) -> AsyncIterator[int]:
        """Serve it with TLS; yield the port."""
        app = web.Application()
        app.router.add_get(PATH, self._list)
        app.router.add_get(f"{PATH}/namespaces/{{namespace}}/{{name}}", self._value)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0, ssl_context=_certified(folder))
        await site.start()
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()


def _certified(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "tls.key", folder / "tls.crt"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    argv += ["-nodes", "-days", "1", "-subj", "/CN=localhost"]
    argv += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def objects(namespace: str, port: int) -> str:
    """Return what makes the API server ask it: its Service leads to this machine."""
    service: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics", "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "metrics", "namespace": namespace, "port": port},
        },
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, api]})
