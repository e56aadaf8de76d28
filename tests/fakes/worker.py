"""A whole worker on real sockets: the fake engine and the real sidecar, in this loop.

    async with Worker("127.1.0.7", model, weights, "token", scratch) as worker:
        ...  # worker.admin_url, worker.engine_url

Any 127.x.y.z is this machine, so hundreds of workers each have the real ports 8000 and
8090 on an address of their own, as pods have. With port 0 the system chooses, once for
all its engines and all its sidecars.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from fastapi import FastAPI

from rlfleet_contract import paths
from rlfleet_contract.tls import CA_KEY, verifying_context
from rlfleet_contract.worker.report import WorkerReport
from rlfleet_sidecar.app import create_app
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.behaviour import Behaviour
from tests.fakes.engine import FakeEngine
from tests.fakes.mount import mount
from tests.fakes.serving import Listener, reserved


class Worker:
    """Starts and ends its engine and its sidecar as a kubelet would."""

    def __init__(
        self,
        address: str,
        model: Path,
        weights: Path,
        token: str,
        scratch: Path,
        *,
        engine_port: int = paths.ENGINE_PORT,
        admin_port: int = paths.ADMIN_PORT,
        behaviour: Behaviour | None = None,
        **settings: Any,
    ) -> None:
        self._address = address
        self._model = model
        self._token = token
        self._scratch = scratch
        self._engine_port = engine_port
        self._admin_port = admin_port
        self._tls: Path | None = settings.get("tls_dir")
        self._settings = {"weights_path": f"{weights}/{{version}}"} | settings
        self._engine_listener: Listener | None = None
        self._admin_listener: Listener | None = None
        self._ended: list[Listener] = []
        self._reserved = ExitStack()
        self._sidecar = AsyncExitStack()
        self._deaths: set[asyncio.Task[None]] = set()
        scratch.mkdir(parents=True, exist_ok=True)
        mount(scratch, {"token": token})
        self.engine = FakeEngine(model, scratch / "gate", self._die)
        self.engine.behaviour = behaviour or Behaviour()

    def give_token(self, token: str) -> None:
        """Write the admin token, as a mounted Secret would bring it."""
        self.give_secret({"token": token})

    def give_secret(self, data: Mapping[str, str]) -> None:
        """Replace the mounted Secret, by one rename as a kubelet does."""
        self._token = data["token"]
        mount(self._scratch, data)

    async def __aenter__(self) -> Self:
        self._engine_port = self._engine_port or self._reserve()
        self._admin_port = self._admin_port or self._reserve()
        await self._listen()
        await self.start_sidecar()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A hanging engine must not hold up the sidecar's last command.
        await self.kill_engine()
        await self.stop_sidecar()
        for listener in self._ended:
            listener.hang_up()
        await asyncio.sleep(0)
        self._reserved.close()

    @property
    def engine_url(self) -> str:
        """Where samplers speak to the engine."""
        return f"http://{self._address}:{self._engine_port}"

    @property
    def admin_url(self) -> str:
        """Where the operator speaks to the sidecar."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._address}:{self._admin_port}"

    def client(self) -> httpx.AsyncClient:
        """Make a client of the sidecar that has the token."""
        headers = {"authorization": f"Bearer {self._token}"}
        # A transport of its own: the default one loads certificates for 20 ms.
        known = None if self._tls is None else (self._tls / CA_KEY).read_text()
        verify = False if known is None else verifying_context(known)
        transport = httpx.AsyncHTTPTransport(verify=verify, trust_env=False)
        return httpx.AsyncClient(
            base_url=self.admin_url, headers=headers, timeout=30, transport=transport
        )

    async def report(self) -> WorkerReport:
        """Ask the sidecar how the worker stands."""
        async with self.client() as client:
            reply = await client.get(paths.STATE_PATH)
        return WorkerReport.model_validate_json(reply.content)

    async def kill_engine(self) -> None:
        """End the engine as SIGKILL does."""
        listener, self._engine_listener = self._engine_listener, None
        if listener is not None:
            self._ended.append(listener)
            await listener.stop()

    async def restart_engine(self) -> None:
        """Restart the engine, on the boot weights and behind a closed gate."""
        await self.kill_engine()
        self.engine.boot()
        await self._listen()

    async def start_sidecar(self) -> None:
        """Start a sidecar over what the last one left on disk."""
        app = create_app(self._sidecar_settings(), self._way())
        self._admin_listener = Listener(app, self._address, self._admin_port, self._tls)
        await self._sidecar.enter_async_context(_living(app))
        await self._admin_listener.start()

    async def stop_sidecar(self) -> None:
        """End the sidecar as SIGTERM does: the command under way is finished."""
        listener, self._admin_listener = self._admin_listener, None
        if listener is not None:
            self._ended.append(listener)
            await listener.stop()
        await self._sidecar.aclose()

    def _reserve(self) -> int:
        port: int = self._reserved.enter_context(reserved(self._address)).getsockname()[1]
        return port

    async def _listen(self) -> None:
        listener = Listener(self._application(), self._address, self._engine_port)
        await listener.start()
        self._engine_listener = listener

    def _way(self) -> httpx.AsyncBaseTransport | None:
        """Return how the sidecar reaches its engine; None: by loopback, as in a pod."""
        return None

    def _application(self) -> object:
        """Return what answers on the engine's port; a subclass may stand in front of it."""
        return self.engine.application

    def _die(self) -> None:
        """Called by the engine itself, from within one of its requests."""
        task = asyncio.get_running_loop().create_task(self.kill_engine())
        self._deaths.add(task)
        task.add_done_callback(self._deaths.discard)

    def _sidecar_settings(self) -> SidecarSettings:
        return SidecarSettings.model_validate(
            {
                "model_name": "fake",
                "model_path": self._model,
                "engine_url": self.engine_url,
                "token_file": self._scratch / "token",
                "state_dir": self._scratch / "state",
                "cache_dir": self._scratch / "cache",
                # How full this machine's disk is has nothing to do with what is tested.
                "cache_spare": 0,
                # Nearly all tests are about something else.
                "self_test_s": 0,
                "experimental_transfer": True,
                # The fake's answers do not depend on its batch, unless a test says so.
                "gauge_s": 0,
                **self._settings,
            }
        )


def _living(app: FastAPI) -> Any:
    return app.router.lifespan_context(app)
