"""Carries out each command once, and repeats stored answers.

A command is recorded before it has an effect, and its answer before it is sent. An answer
belongs to the command, not to the caller: it is stored even if the caller is gone.
"""

import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from rlfleet_contract.single_flight import SingleFlight
from rlfleet_contract.worker.commands import BESIDE, Verb
from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.report import RejectedTrainer, Running, Target, WorkerReport
from rlfleet_sidecar.change.executor import Executor, WeightsRequest
from rlfleet_sidecar.change.lora_commands import LoRACommands, LoRARequest
from rlfleet_sidecar.change.ttl import ChangeTTL
from rlfleet_sidecar.errors import SidecarError, about
from rlfleet_sidecar.state.fence_rules import (
    StoredAnswer,
    demand_addressee,
    demand_unled,
    judge_fence,
)
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.sent_weights import demand_unowned

AnyRequest = WeightsRequest | LoRARequest
_OK = 200
_AGAIN_S = 60.0
"""How long repeats of a rejected trainer are not reported again."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    place: Place
    change: Running | None = field(compare=False)
    """Its step in the report before it has begun; None if the worker serves during it."""


class Fencing:
    """All commands except the sidecar's own pass through here."""

    def __init__(
        self,
        fleet: str,
        pod: str,
        journal: Journal,
        executor: Executor,
        lora: LoRACommands,
        leadership: ChangeTTL,
    ) -> None:
        self._fleet, self._pod = fleet, pod
        self._journal = journal
        self._executor = executor
        self._lora = lora
        self._leadership = leadership
        self._target: Target | None = None
        """The fleet's target, by the last heartbeat."""
        self._rejected: RejectedTrainer | None = None
        self._under_way = SingleFlight[_UnderWay]()

    async def carry_out(self, request: AnyRequest) -> StoredAnswer:
        """Return a command's stored answer, or carry it out.

        Raises SidecarError for a command to another worker, and for a stale one.
        """
        fence = request.fence
        if fence is None:
            return await self._answer(request)
        key = _UnderWay(fence.place, _change(request))
        digest = sha256(request.model_dump_json().encode()).hexdigest()
        is_under_way = key in self._under_way.keys
        answer = self._known_answer(request, fence, digest, is_under_way=is_under_way)
        if answer is not None:
            return answer
        return await self._under_way.join(key, lambda: self._answer(request))

    async def unfenced(self, request: AnyRequest) -> WorkerReport:
        """Carry out a command without a fence; raises its problem."""
        with about(request):
            self.demand_unled(request.operation)
            return await self._begun(request)

    def demand_unled(self, operation: str) -> None:
        """Raise Busy for a call without a fence during an operator's change."""
        lead = self._journal.lead
        led_by = None if lead is None else (lead.operation, lead.epoch)
        demand_unled(self._journal.state.stage, operation, led_by)

    def demand_unowned(self, call: str, client: str) -> None:
        """Raise for a trainer's call while the fleet has a target, and report it."""
        try:
            demand_unowned(self._target)
        except SidecarError:
            known, now = self._rejected, time.time()
            is_repeat = known is not None and known.client == client and now - known.at < _AGAIN_S
            if not is_repeat:
                self._rejected = RejectedTrainer(client=client, call=call, at=now)
            raise

    def heartbeat(self, epoch: int, target: Target | None = None) -> bool:
        """Apply a heartbeat and return True; one of a lower epoch than seen has no effect."""
        if not self._journal.observe_epoch(epoch):
            return False
        self._ask(target)
        self._leadership.beat()
        return True

    def unasked(self, epoch: int) -> None:
        """Record that the fleet has no target; no heartbeat."""
        if self._journal.observe_epoch(epoch):
            self._ask(None)

    def _ask(self, target: Target | None) -> None:
        self._target = target
        if target is None:
            self._rejected = None

    def end(self, place: Place) -> None:
        """Record that a driver has cancelled its commands up to this place."""
        self._journal.over(place)

    def counting(self, report: WorkerReport) -> WorkerReport:
        """Add a command that has arrived but not begun, and the last rejected trainer.

        A command first checks its files, which may take a while. Without this a driver would
        count the worker as idle and start with the next one.
        """
        is_reported = report.running is not None and report.running.verb not in BESIDE
        changes = (one.change for one in self._under_way.keys if one.change is not None)
        pending = None if is_reported else next(changes, None)
        found = {} if pending is None else {"running": pending}
        return report.model_copy(update={**found, "rejected_trainer": self._rejected})

    async def landed(self) -> None:
        """Wait until the answer of every command under way is recorded."""
        await self._under_way.landed()

    def _known_answer(
        self, request: AnyRequest, fence: Fence, digest: str, *, is_under_way: bool
    ) -> StoredAnswer | None:
        """Return a command's stored answer; a new command is recorded."""
        with about(request):
            demand_addressee(fence, self._fleet, self._pod)
            seen = self._journal.seen
            answer = judge_fence(seen, fence, digest, is_under_way=is_under_way)
            if answer is None and not is_under_way:
                self._receive(request, fence, digest)
            return answer

    def _receive(self, request: AnyRequest, fence: Fence, digest: str) -> None:
        """Record a command; one that the disk rejects is reported, since no answer is stored."""
        try:
            with about(request):
                self._journal.receive(fence, digest)
        except SidecarError as error:
            if request.VERB is Verb.PREPARE:
                self._journal.refused(error.problem())
            elif request.VERB is not Verb.ADAPT:
                self._journal.failed(error.problem())
            raise

    async def _answer(self, request: AnyRequest) -> StoredAnswer:
        """Carry out a command; the answer to one with a fence is recorded."""
        try:
            with about(request):
                if request.fence is None:
                    self.demand_unled(request.operation)
                report = await self._begun(request)
        except SidecarError as error:
            status = error.code.status
            answer = StoredAnswer(status=status, body=error.problem().model_dump_json())
        else:
            answer = StoredAnswer(status=_OK, body=report.model_dump_json())
        if request.fence is not None:
            self._journal.answer(request.fence, answer)
        return answer

    def _begun(self, request: AnyRequest) -> Coroutine[Any, Any, WorkerReport]:
        if isinstance(request, LoadAdapterRequest | UnloadAdapterRequest):
            return self._lora.carry_out(request)
        return self._executor.carry_out(request)


def _change(request: AnyRequest) -> Running | None:
    """Return the step of a command for weights in the report."""
    if request.VERB in BESIDE:
        return None
    return Running(verb=request.VERB, operation=request.operation, version=request.version)
