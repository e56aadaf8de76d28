"""The components of one run: a namespace, an operator, workers, and the proxies between them."""

import asyncio
import itertools
import math
import random
import socket
import time
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from dev.kubernetes import control_plane
from dev.kubernetes.apiserver import ControlPlane
from faults.api_proxy import ApiProxy
from faults.ledger import Ledger
from faults.processes import Forked
from faults.sidecar_proxy import SidecarProxy
from faults.workers import RESTART_S, Kept
from rlfleet_contract import paths
from rlfleet_operator.errors import Missing, OperatorError
from rlfleet_operator.kube.client import Json, KubeClient, fleet_path, object_path
from tests.fakes import checkpoints
from tests.fakes.behaviour import Behaviour
from tests.fakes.memory import digest_of
from tests.hollow import Hollow, HollowNode

VERSIONS = ("step-1", "step-2", "step-3")
BAD = "bad"
"""Damaged: refused before anything is paused."""
BREAKING = "breaking"
"""Sound as a file, and every engine fails to load it."""
_ADDRESSES = 24
_RELOAD_S = 0.1
_SIDECAR = {"poll_s": 0.2}
"""A sidecar of a pod looks every second; a run has few."""
_POLL_S = "0.5"
_PATIENCE_S = "2"
_SUSPENDED_S = 8.0
"""Longer than a state request may take, and than a command waits for a worker that is idle."""


@dataclass(frozen=True, slots=True)
class Materials:
    """Checkpoints that all runs share and none changes."""

    model: Path
    weights: Path
    versions: dict[str, str]
    """The name of each version by the digest of its tensors."""

    @classmethod
    def write(cls, root: Path) -> Self:
        """Write the base model, good versions and a bad one."""
        model, weights = checkpoints.write_model(root / "model"), root / "weights"
        for seed, version in enumerate(VERSIONS, start=1):
            checkpoints.write_version(weights, version, seed)
        checkpoints.write_version(weights, BREAKING, seed=8)
        digests = {digest_of(weights / version): version for version in VERSIONS}
        checkpoints.spoil(checkpoints.write_version(weights, BAD, seed=9), "truncated by half")
        return cls(model, weights, digests | {digest_of(model): paths.BASE_VERSION})


class Cell:
    """One run's surroundings."""

    def __init__(
        self,
        plane: ControlPlane,
        kube: KubeClient,
        materials: Materials,
        ledger: Ledger,
        scratch: Path,
        *,
        is_impatient: bool,
    ) -> None:
        """``is_impatient``: the operator gives up a silent watch after two seconds."""
        self.plane, self.kube, self.materials = plane, kube, materials
        self.ledger, self.scratch = ledger, scratch
        self.namespace = f"f-{uuid.uuid4().hex[:8]}"
        self.log = scratch / "operator.log"
        self.begun_at = 0.0
        """When the operator started or continued, by the monotonic clock; infinite until then."""
        self._is_impatient = is_impatient
        self._stack = AsyncExitStack()
        self._process: Forked
        self._returns: set[asyncio.Task[None]] = set()
        """Bring back an operator that was killed or suspended."""
        self.node: HollowNode

    async def __aenter__(self) -> Self:
        """Start everything."""
        self.scratch.mkdir(parents=True)
        names = {"metadata": {"name": self.namespace}}
        await self.kube.create("/api/v1/namespaces", names)
        addresses = self._stack.enter_context(_Block()).addresses
        to_api = ApiProxy(self.plane, self.ledger, self.crash)
        await to_api.start()
        self._stack.push_async_callback(to_api.stop)
        to_sidecars = SidecarProxy(self.ledger, self.crash)
        await to_sidecars.start(addresses)
        self._stack.push_async_callback(to_sidecars.stop)
        to_sidecars.name_of, to_sidecars.kill = self._name_of, self._kill_at
        to_sidecars.suspend = self.suspend
        self.node = await self._stack.enter_async_context(self._node(iter(addresses)))
        await self._account()
        self._process = self._operator(to_api.url, to_sidecars.port)
        self._stack.push_async_callback(self._end_operator)
        await self._process.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End everything; the namespace goes by itself."""
        await self._stack.aclose()
        with suppress(OperatorError):
            path = f"/api/v1/namespaces/{self.namespace}"
            found = await self.kube.get(path)
            await self.kube.delete(path, found["metadata"]["uid"])

    def _node(self, addresses: Iterator[str]) -> HollowNode:
        def choose(name: str) -> dict[str, Any]:
            behaviour = Behaviour(reload_s=_RELOAD_S)
            return {"name": name, "behaviour": behaviour, **_SIDECAR}

        return HollowNode(
            self.kube,
            self.namespace,
            self.materials.model,
            self.materials.weights,
            self.scratch / "pods",
            probe_s=0.1,
            choose=choose,
            make=partial(Kept, ledger=self.ledger, crash=self.crash, breaking=BREAKING),
            addresses=addresses,
        )

    async def _account(self) -> None:
        """Wait for the namespace's ServiceAccount: no pod is made without."""
        while True:
            with suppress(Missing):
                await self.kube.get(object_path(self.namespace, "serviceaccounts", "default"))
                return
            await asyncio.sleep(0.05)

    # --- the operator -----------------------------------------------------------------------------

    def _operator(self, url: str, sidecar_port: int) -> Forked:
        kubeconfig = self.scratch / "kubeconfig"
        control_plane.write_private(
            kubeconfig, control_plane.kubeconfig(url, self.plane.token, self.plane.ca)
        )
        variables = {
            "KUBECONFIG": str(kubeconfig),
            "RLFLEET_WORKER_IMAGE": "worker:faults",
            "RLFLEET_METRICS_PORT": "0",
            "RLFLEET_NAMESPACES": self.namespace,
            "RLFLEET_POLL_SECONDS": _POLL_S,
            "RLFLEET_ADMIN_PORT": str(sidecar_port),
        }
        if self._is_impatient:
            variables["RLFLEET_WATCH_SILENCE_SECONDS"] = _PATIENCE_S
        return Forked("rlfleet_operator", variables, self.log)

    async def crash(self) -> None:
        """Kill the operator; it is started again a moment later."""
        self.begun_at = math.inf
        await self._process.kill()

        async def again() -> None:
            await asyncio.sleep(RESTART_S)
            self.begun_at = time.monotonic()
            await self._process.start()

        self._later(again())

    def suspend(self) -> None:
        """Suspend the operator; it continues by itself, too late for all that it waited for."""
        self.begun_at = math.inf

        async def through() -> None:
            await self._process.suspend(_SUSPENDED_S)
            self.begun_at = time.monotonic()

        self._later(through())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def _end_operator(self) -> None:
        for task in self._returns:
            task.cancel()
        await asyncio.gather(*self._returns, return_exceptions=True)
        await self._process.kill()

    # --- workers ----------------------------------------------------------------------------------

    def hollow(self) -> dict[str, Hollow]:
        """Return the pods that the node knows, by name."""
        return dict(self.node.pods)

    def worker(self, name: str) -> Kept:
        """Return the worker that stands for a pod."""
        found = self.node.worker(name)
        if not isinstance(found, Kept):
            raise TypeError(name)
        return found

    def _name_of(self, address: str) -> str:
        return next((n for n, pod in self.node.pods.items() if pod.address == address), address)

    async def _kill_at(self, address: str) -> None:
        await self.worker(self._name_of(address)).lose_sidecar()

    # --- fleets -----------------------------------------------------------------------------------

    async def create(self, name: str, rollout: Mapping[str, object], **spec: Any) -> None:
        """Create a fleet with the least spec, ``spec``, and this in its rollout."""
        least = {
            "replicas": 2,
            "weightVersion": VERSIONS[0],
            "model": {"name": "qwen", "path": "/models/qwen"},
            "weights": {"path": "/weights/{version}"},
            "rollout": {"maxUnavailable": 1, "timeouts": _TIMEOUTS, **rollout},
        }
        body = {
            "apiVersion": "rlfleet.dev/v1alpha1",
            "kind": "RLInferenceFleet",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": least | spec,
        }
        await self.kube.create(fleet_path(self.namespace, "").rstrip("/"), body)

    async def patch(self, name: str, **spec: Any) -> None:
        """Merge-patch a fleet's spec."""
        await self.kube.patch(fleet_path(self.namespace, name), {"spec": spec})

    async def get(self, name: str) -> Json | None:
        """Return a fleet; None when there is none."""
        try:
            return await self.kube.get(fleet_path(self.namespace, name))
        except Missing:
            return None

    async def delete(self, name: str) -> None:
        """Delete a fleet."""
        path = fleet_path(self.namespace, name)
        found = await self.kube.get(path)
        await self.kube.delete(path, found["metadata"]["uid"])


_TIMEOUTS = {
    "prepareSeconds": 20,
    "pauseSeconds": 4,
    "flushSeconds": 4,
    "reloadSeconds": 15,
    "verifySeconds": 15,
    "resumeSeconds": 4,
}


class _Block:
    """Addresses of loopback that no other run uses, on this machine and now."""

    def __enter__(self) -> Self:
        for _ in itertools.count():
            block = f"127.{random.randint(200, 250)}.{random.randint(0, 250)}"  # noqa: S311
            try:
                self._held = socket.create_server((f"{block}.250", paths.ADMIN_PORT))
            except OSError:
                time.sleep(0)
                continue
            self.addresses = [f"{block}.{n}" for n in range(1, _ADDRESSES + 1)]
            break
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()
