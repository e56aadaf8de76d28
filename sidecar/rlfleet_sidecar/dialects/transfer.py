"""A trainer's transfer, whose calls are parts of the trainer's change."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from rlfleet_contract.worker.commands import FlushRequest, VerifyRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_sidecar.change.fencing import Fencing
from rlfleet_sidecar.change.transfer import Info, Transfer
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.dialects.caller import CALLER
from rlfleet_sidecar.dialects.lora import TrainerLoRA
from rlfleet_sidecar.dialects.operation import TrainerChange
from rlfleet_sidecar.dialects.retry import patiently
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.preconditions import demand_up
from rlfleet_sidecar.state.sent_weights import version_of


class TrainerTransfer:
    """Forwards the calls to the engine; from the first to the proof a resume is rejected."""

    def __init__(
        self,
        change: TrainerChange,
        fencing: Fencing,
        transfer: Transfer,
        library: TrainerLoRA,
        patience_s: Mapping[Code, float],
    ) -> None:
        self._change = change
        self._patience_s = patience_s
        self._fencing = fencing
        self._transfer = transfer
        self._library = library

    async def init(self, info: Mapping[str, Any]) -> None:
        """Form a group with the trainer; a failure changes nothing."""

        async def form() -> None:
            demand_up(self._change.state.stage)
            operation = self._operation()
            await self._transfer.init(operation, info)

        await patiently(form, self._patience_s)

    async def shutdown(self) -> None:
        """Leave the group; allowed even if the fleet has a target."""
        demand_up(self._change.state.stage)
        operation = self._change.operation()
        self._fencing.demand_unled(operation)
        await self._transfer.shutdown(operation)

    def demand_group(self) -> None:
        """Raise unless an update could begin; called before a pause."""
        with self._recording():
            demand_up(self._change.state.stage)
            self._operation()
            self._transfer.demand_group()

    async def start(self) -> None:
        """Begin an update of the paused engine."""
        await self._sent(self._transfer.start)

    async def send(self, info: Info) -> None:
        """Have the engine receive a part."""
        await self._sent(lambda operation: self._transfer.update(operation, info))

    async def finish(self, named: str | None) -> WorkerReport:
        """End the update and prove that the engine's answers are finite and reproducible."""
        change = self._change
        with change.recording():
            version = version_of(named, uuid4().hex[:12])
        operation = change.operation()
        await self._sent(lambda _: self._transfer.finish(operation, version))
        with change.recording():
            if not await change.keeps_caches(operation):
                await self._fencing.unfenced(FlushRequest(operation=operation, version=version))
            report = await self._fencing.unfenced(
                VerifyRequest(operation=operation, version=version)
            )
        change.ended_well()
        return report

    async def _sent(self, act: Callable[[str], Awaitable[None]]) -> None:
        """Carry out a part of an update, which rejects a resume from here to its end."""
        change = self._change
        with self._recording():
            demand_up(change.state.stage)
            operation = self._operation()
            rules.demand_unopened(change.state)
            change.begun("weight transfer")
            await act(operation)

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Record an error inside as the update's; a worker that serves is in none."""
        try:
            yield
        except SidecarError as error:
            if self._change.state.stage is not Stage.OPEN:
                self._change.failed(error)
            raise

    def _operation(self) -> str:
        """Return the operation; raises if the operator or an adapter would hide these weights."""
        self._fencing.demand_unowned(*CALLER.get())
        self._library.demand_bare()
        operation = self._change.operation()
        self._fencing.demand_unled(operation)
        return operation
