"""Workers whose sidecar is a real process, and that come back as under a kubelet."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from faults.door import Door
from faults.ledger import Ledger
from faults.processes import Forked
from rlfleet_contract.settings import PREFIX
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.state.journal_log import last_record
from tests.fakes.worker import Worker

RESTART_S = 0.3
"""The time until a container that ended restarts."""


class Written(BaseModel):
    """A sidecar's journal, read from disk without a request to the sidecar."""

    model_config = ConfigDict(extra="ignore")

    state: dict[str, Any]
    refusal: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    last_change: dict[str, Any] | None = None


class Kept(Worker):
    """A fake engine in this process, a sidecar in its own; whatever is killed is started again."""

    def __init__(
        self,
        *words: Any,
        name: str,
        ledger: Ledger,
        crash: Callable[[], Awaitable[None]],
        breaking: str,
        **more: Any,
    ) -> None:
        """``crash`` and ``breaking`` are for the engine's door."""
        super().__init__(*words, **more)
        self._breaking = breaking
        self._name, self._ledger, self._crash = name, ledger, crash
        self._process: Forked | None = None
        self._ending = False
        self._starts: set[asyncio.Task[None]] = set()
        self.is_up = False
        """Whether the engine listens."""
        self.losses = 0
        """How often a fault took its engine or its sidecar."""
        self.reloads = 0

    async def __aexit__(self, *_: object) -> None:
        """End it for good."""
        self._ending = True
        for task in list(self._starts):
            task.cancel()
        await self.kill_engine()
        await self.stop_sidecar()

    async def start_sidecar(self) -> None:
        """Start a sidecar over what the last one left on disk."""
        self._process = Forked("rlfleet_sidecar", self._variables(), self.log)
        await self._process.start()

    async def stop_sidecar(self) -> None:
        """End it by SIGKILL, as with a deleted pod."""
        if self._process is not None:
            await self._process.kill()

    async def lose_sidecar(self) -> None:
        """Kill the sidecar; it comes back."""
        self.losses += 1
        await self.stop_sidecar()
        self._soon(self.start_sidecar)

    async def lose_engine(self) -> None:
        """Kill the engine; it comes back on the boot weights."""
        self.losses += 1
        await self._die_and_return()

    @property
    def log(self) -> Path:
        """The sidecar's output."""
        return self._scratch / "sidecar.log"

    def files(self) -> list[str]:
        """List what the sidecar keeps on disk."""
        root = self._scratch / "state"
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())

    def written(self) -> Written | None:
        """Read the journal; None before there is one."""
        try:
            content = (self._scratch / "state" / "worker.json").read_bytes()
            return Written.model_validate_json(last_record(content) or b"")
        except (FileNotFoundError, ValidationError):
            return None

    async def kill_engine(self) -> None:
        """End the engine as SIGKILL does."""
        self.is_up = False
        await super().kill_engine()

    async def _listen(self) -> None:
        await super()._listen()
        self.is_up = True

    def _application(self) -> object:
        door = Door(self.engine.application, self._name, self._ledger, self._crash, self._breaking)
        door.worker = self
        return door

    def _die(self) -> None:
        """Restart the engine, which reports its own end here."""
        task = asyncio.ensure_future(self._die_and_return())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def _die_and_return(self) -> None:
        await self.kill_engine()
        self._soon(self.restart_engine)

    def _soon(self, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def later() -> None:
            await asyncio.sleep(RESTART_S)
            if not self._ending:
                await start()

        task = asyncio.ensure_future(later())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    def _variables(self) -> dict[str, str]:
        settings = self._sidecar_settings().model_copy(
            update={"host": self._address, "port": self._admin_port}
        )
        return {PREFIX + name.upper(): text for name, text in _texts(settings).items()}


def _texts(settings: SidecarSettings) -> dict[str, str]:
    """Write settings as the environment has them."""
    found = {name: value for name, value in settings if value is not None}
    return {
        name: ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in found.items()
    }
