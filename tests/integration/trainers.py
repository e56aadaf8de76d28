"""Operators that serve the fleet API, and a trainer that asks there."""

import base64
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from dev.kubernetes import apiserver
from rlfleet_contract.tls import CA_KEY
from rlfleet_operator.kube.client import Json
from tests.integration.conftest import Fleet, Operator

SPEC: Json = {"replicas": 2, "rollout": {"maxUnavailable": 1}}


class Replica(Operator):
    """One of two operators, and the fleet API that it serves."""

    def __init__(
        self, plane: apiserver.ControlPlane, log: Path, namespace: str, tls: Path | None = None
    ) -> None:
        """``tls`` is a folder with a certificate for 127.0.0.1, its key and its CA."""
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}" if tls is None else f"https://127.0.0.1:{port}"
        self._verify = False if tls is None else ssl.create_default_context(cafile=tls / CA_KEY)
        secure = {} if tls is None else {"RLFLEET_FLEETS_TLS_DIR": str(tls)}
        names = {"RLFLEET_LEASE_NAME": "rlfleet", "RLFLEET_LEASE_NAMESPACE": namespace}
        super().__init__(plane, log, namespace, RLFLEET_FLEETS_PORT=str(port), **names, **secure)

    async def is_listening(self) -> bool:
        async with httpx.AsyncClient(trust_env=False, verify=self._verify, timeout=60) as client:
            try:
                return (await client.get(self.url)).status_code == 401
            except httpx.HTTPError:
                return False


class Reply(NamedTuple):
    """The answers that a trainer gets."""

    status: int
    body: Json
    headers: httpx.Headers


class Trainer:
    """A client of one fleet that has its token."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    async def token(self) -> str:
        path = f"/api/v1/namespaces/{self.fleet.namespace}/secrets/{self.fleet.name}-admin"
        secret = await self.fleet.kube.get(path)
        return base64.b64decode(secret["data"]["token"]).decode()

    async def asks(
        self, replica: Replica, method: str, route: str, says: bytes | None = None, **words: Any
    ) -> Reply:
        url = f"{replica.url}/fleets/{self.fleet.namespace}/{self.fleet.name}/v1/rl/{route}"
        token = f"Bearer {await self.token()}".encode() if says is None else says
        headers = {b"Authorization": token}
        timeout = words.pop("timeout", 60)
        async with httpx.AsyncClient(trust_env=False, timeout=timeout) as client:
            said = await client.request(method, url, headers=headers, **words)
        return Reply(said.status_code, said.json(), said.headers)

    async def updates(self, replica: Replica, **body: Any) -> Reply:
        return await self.asks(replica, "POST", "update_weights", json=body)

    async def target(self) -> str:
        return str((await self.fleet.status()).get("trainerTarget", {}).get("version", ""))
