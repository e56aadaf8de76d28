"""A kubelet without containers: every worker pod gets a fake engine under the real sidecar.

It does for pods of a bare API server what a node would: gives each an address of its own
on loopback, runs the worker there, and writes the status that a kubelet would write
from the sidecar's readiness probe and the readiness gate.
"""

import asyncio
import base64
import itertools
import secrets
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from rlfleet_contract import paths
from rlfleet_operator.core.model.world import FLEET_LABEL, READINESS_GATE
from rlfleet_operator.errors import OperatorError
from rlfleet_operator.kube.client import STRATEGIC_PATCH, Json, KubeClient, WatchEnded, is_newer
from tests.fakes.worker import Worker

Choose = Callable[[str], dict[str, Any]]
"""What a pod's worker is made with, by the pod's name: behaviour and settings."""


def _free_addresses() -> Iterator[str]:
    """Yield addresses of loopback that no other process of this machine gives to a pod.

    What holds a block is one of its own ports: the kernel frees it however the process ends.
    """
    while True:
        block = f"127.{10 + secrets.randbelow(190)}.{secrets.randbelow(250)}"
        try:
            held = socket.create_server((f"{block}.250", paths.ADMIN_PORT))
        except OSError:
            continue
        with held:
            yield from (f"{block}.{last}" for last in range(1, 250))


_addresses = _free_addresses()
_UNCHECKED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""A kubelet does not check the certificate of what it probes."""
_UNCHECKED.check_hostname = False
_UNCHECKED.verify_mode = ssl.CERT_NONE


@dataclass
class Hollow:
    """One pod and the worker that stands for it."""

    name: str
    namespace: str
    uid: str
    address: str
    worker: Worker
    is_ready: bool = False
    raw: Json = field(default_factory=dict)

    def see(self, raw: Json) -> None:
        """Take a newer state of the pod: a write's answer may come later than the watch's word."""
        if is_newer(raw, self.raw):
            self.raw = raw


class HollowNode:
    """Follows the pods of all fleets until it is left."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        model: Path,
        weights: Path,
        scratch: Path,
        *,
        probe_s: float = 0.2,
        choose: Choose = lambda _: {},
        make: Callable[..., Worker] = Worker,
        addresses: Iterator[str] = _addresses,
        is_mine: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._kube, self._model, self._weights, self._scratch = kube, model, weights, scratch
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._probe_s = probe_s
        self._make, self._addresses = make, addresses
        self.choose, self._is_mine = choose, is_mine
        self.refuses: Callable[[str], str | None] = lambda _: None
        """Why a pod of this name is not admitted; None if it is."""
        self.refused: list[str] = []
        """UIDs of the pods that were not admitted."""
        self.strangers: set[str] = set()
        """Names of pods whose sidecars are given another token than the fleet's."""
        self.pods: dict[str, Hollow] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._farewells: list[asyncio.Future[None]] = []
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        self._spawn(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*self._farewells)
        await asyncio.gather(*(p.worker.__aexit__(None, None, None) for p in self.pods.values()))

    def worker(self, name: str) -> Worker:
        """Return the worker that stands for a pod."""
        return self.pods[name].worker

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        while True:
            try:
                listed = await self._kube.get(self._path, labelSelector=FLEET_LABEL)
                version = listed["metadata"]["resourceVersion"]
                self._listed(listed["items"])
                watch = self._kube.watch(self._path, version, labelSelector=FLEET_LABEL)
                async for kind, raw in watch:
                    self._seen(kind, raw)
            except (OperatorError, WatchEnded):
                await asyncio.sleep(0.2)

    def _listed(self, found: list[Json]) -> None:
        """Take all pods that there are: one that was deleted without a watch is in no list."""
        uids = {raw["metadata"]["uid"] for raw in found}
        for pod in [pod for pod in self.pods.values() if pod.uid not in uids]:
            self._leave(pod)
        for raw in found:
            self._seen("ADDED", raw)

    def _seen(self, kind: str, raw: Json) -> None:
        if kind == "BOOKMARK":
            return
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        if not self._is_mine(name):
            return
        known = self.pods.get(name)
        if known is not None and (known.uid != uid or kind == "DELETED"):
            self._leave(known)
            known = None
        if known is not None:
            known.see(raw)
        elif kind != "DELETED" and uid not in self.refused:
            self._admit(raw)

    def _leave(self, pod: Hollow) -> None:
        del self.pods[pod.name]
        # Not among the tasks that are cancelled at the end: half ended, it would leak.
        self._farewells.append(asyncio.ensure_future(pod.worker.__aexit__(None, None, None)))

    def _admit(self, raw: Json) -> None:
        reason = self.refuses(raw["metadata"]["name"])
        if reason is None:
            self._start(raw)
        else:
            self.refused.append(raw["metadata"]["uid"])
            self._spawn(self._fail(raw, reason))

    async def _fail(self, raw: Json, reason: str) -> None:
        """Write what a kubelet writes on a pod that it does not admit."""
        metadata = raw["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected"}
        body = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._kube.patch(path, body, STRATEGIC_PATCH)

    def _start(self, raw: Json) -> None:
        metadata = raw["metadata"]
        name, address = metadata["name"], next(self._addresses)
        worker = self._make(
            address,
            self._model,
            self._weights,
            "",
            self._scratch / f"{name}-{next(self._numbers)}",
            engine_port=paths.ENGINE_PORT,
            admin_port=paths.ADMIN_PORT,
            **self.choose(name),
        )
        pod = Hollow(name, metadata["namespace"], metadata["uid"], address, worker, raw=raw)
        self.pods[name] = pod
        self._spawn(self._run(pod))

    async def _run(self, pod: Hollow) -> None:
        fleet = pod.raw["metadata"]["labels"][FLEET_LABEL]
        path = f"/api/v1/namespaces/{pod.namespace}/secrets/{fleet}-admin"
        secret = None
        while secret is None:
            if self.pods.get(pod.name) is not pod:
                return
            try:
                secret = await self._kube.get(path)
            except OperatorError:
                await asyncio.sleep(0.1)
        token = base64.b64decode(secret["data"]["token"]).decode()
        pod.worker.give_token(token[::-1] if pod.name in self.strangers else token)
        await pod.worker.__aenter__()
        await self._write(pod)
        while self.pods.get(pod.name) is pod:
            await asyncio.sleep(self._probe_s)
            is_ready = await self._is_ready(pod)
            # One that left since must not write its address over its successor's.
            is_here = self.pods.get(pod.name) is pod
            if is_here and (is_ready != pod.is_ready or self._gate_changed(pod)):
                pod.is_ready = is_ready
                await self._write(pod)

    async def _is_ready(self, pod: Hollow) -> bool:
        """Probe as a kubelet does, over a connection of its own: a pool would be searched."""
        at = httpx.URL(pod.worker.admin_url)
        asked = f"GET {paths.READY_PATH} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"
        try:
            async with asyncio.timeout(30):
                secure = _UNCHECKED if at.scheme == "https" else None
                reader, writer = await asyncio.open_connection(at.host, at.port, ssl=secure)
                try:
                    writer.write(asked.encode())
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    @staticmethod
    def _conditions(pod: Hollow) -> dict[str, str]:
        found = (pod.raw.get("status") or {}).get("conditions") or ()
        return {c["type"]: c["status"] for c in found}

    def _gate_changed(self, pod: Hollow) -> bool:
        conditions = self._conditions(pod)
        wanted = pod.is_ready and conditions.get(READINESS_GATE) == "True"
        return (conditions.get("Ready") == "True") != wanted

    async def _write(self, pod: Hollow) -> None:
        gate = self._conditions(pod).get(READINESS_GATE) == "True"
        conditions = [
            {"type": "ContainersReady", "status": str(pod.is_ready)},
            {"type": "Ready", "status": str(pod.is_ready and gate)},
        ]
        status = {
            "phase": "Running",
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": conditions,
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        body = {"metadata": {"uid": pod.uid}, "status": status}
        try:
            pod.see(await self._kube.patch(path, body, STRATEGIC_PATCH))
        except OperatorError:
            # The pod has gone, or will be written again by the next look.
            return
