"""An API server that keeps what is created, or answers everything with one error.

For errors that a real one does not make to order; all else is asked of a real one
(tests/integration).
"""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio import client

from rlfleet_operator.kube.client import Json, KubeClient


class FakeApi:
    """Objects by path, and the error that is made of every request."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.error: int | None = None
        self.errors: dict[str, int] = {}
        """Errors of single paths."""
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        self.asked.append(f"{request.method} {request.path}")
        error = self.error or self.errors.get(request.path)
        if error is not None:
            return _refused(error)
        if request.method == "POST":
            return self._created(request.path, await request.json())
        found = self.objects.get(request.path)
        return web.json_response(found) if found is not None else _refused(404)

    def _created(self, path: str, body: Json) -> web.Response:
        told = {k: base64.b64encode(v.encode()).decode() for k, v in _texts(body).items()}
        made, name = {**body, "data": told}, f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            return _refused(409)
        self.objects[name] = made
        return web.json_response(made, status=201)


def _texts(body: Json) -> dict[str, str]:
    return dict(body.get("stringData") or {})


def _refused(status: int) -> web.Response:
    return web.json_response({"kind": "Status", "message": f"made {status}"}, status=status)


@asynccontextmanager
async def serving(api: FakeApi) -> AsyncIterator[KubeClient]:
    """Serve it, and enter with a connection to it."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", api.handle)
    async with TestServer(app) as server:
        settings = client.Configuration()
        settings.host = str(server.make_url("")).rstrip("/")
        kube = KubeClient(client.ApiClient(settings))
        yield kube
        await kube.close()
