"""Takes each command once, has it carried out, and repeats answers from memory.

What was heard is written down before anything is done, and an answer before it is given.
An answer belongs to the command, not to the caller: it is kept though nobody waits.
"""

import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from rlfleet_contract.single_flight import SingleFlight
from rlfleet_contract.worker.commands import BESIDE
from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.lora import LoadAdapterRequest, UnloadAdapterRequest
from rlfleet_contract.worker.report import Running, WorkerReport
from rlfleet_contract.worker.target import RejectedTrainer, Target
from rlfleet_sidecar.change.executor import Executor, WeightsRequest
from rlfleet_sidecar.change.lora_commands import LoRACommands, LoRARequest
from rlfleet_sidecar.change.ttl import Leadership
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
"""How long repeats of a trainer that was rejected are no news."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    place: Place
    change: Running | None = field(compare=False)
    """What it counts as before it has begun; None if it leaves the worker to its clients."""


class Fencing:
    """The one way to a change for whoever is not this sidecar itself."""

    def __init__(
        self,
        fleet: str,
        pod: str,
        journal: Journal,
        executor: Executor,
        lora: LoRACommands,
        leadership: Leadership,
    ) -> None:
        self._fleet, self._pod = fleet, pod
        self._journal = journal
        self._executor = executor
        self._lora = lora
        self._leadership = leadership
        self._target: Target | None = None
        """What the fleet is asked for, as its driver said last."""
        self._rejected: RejectedTrainer | None = None
        self._under_way = SingleFlight[_UnderWay]()

    async def carry_out(self, request: AnyRequest) -> StoredAnswer:
        """Answer a command, after carrying it out if it was not answered before.

        Raises SidecarError for one that is not meant for this worker, or comes too late.
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
        """Carry out the command of a caller that sends no fence; raises its problem."""
        with about(request):
            self.demand_unled(request.operation)
            return await self._begun(request)

    def demand_unled(self, operation: str) -> None:
        """See that whoever sends no fence does not cross a change that an operator leads."""
        lead = self._journal.lead
        led_by = None if lead is None else (lead.operation, lead.epoch)
        demand_unled(self._journal.state.stage, operation, led_by)

    def demand_unowned(self, call: str, client: str) -> None:
        """Reject a trainer's call while the fleet is asked for a version, and report it."""
        try:
            demand_unowned(self._target)
        except SidecarError:
            known, now = self._rejected, time.time()
            is_repeat = known is not None and known.client == client and now - known.at < _AGAIN_S
            if not is_repeat:
                self._rejected = RejectedTrainer(client=client, call=call, at=now)
            raise

    def heartbeat(self, epoch: int, target: Target | None = None) -> None:
        """Take a sign of life; one of a lower epoch than the highest seen is none."""
        if self._journal.hear_of(epoch):
            self._ask(target)
            self._leadership.beat()

    def unasked(self, epoch: int) -> None:
        """Note that the fleet is asked for no version, by its driver; no sign of life."""
        if self._journal.hear_of(epoch):
            self._ask(None)

    def _ask(self, target: Target | None) -> None:
        self._target = target
        if target is None:
            self._rejected = None

    def end(self, place: Place) -> None:
        """Take the word of a driver that it waits for no command up to this place any more."""
        self._journal.over(place)

    def counting(self, report: WorkerReport) -> WorkerReport:
        """Have a report tell of a change that was heard and has not begun, and of trainers, too.

        Before it begins it looks at its files, which may take a while; whoever took the worker
        for one at rest meanwhile would go on to the next.
        """
        is_told = report.running is not None and report.running.verb not in BESIDE
        changes = (one.change for one in self._under_way.keys if one.change is not None)
        heard = None if is_told else next(changes, None)
        found = {} if heard is None else {"running": heard}
        return report.model_copy(update={**found, "rejected_trainer": self._rejected})

    async def landed(self) -> None:
        """Wait until the answer of every command under way is written down."""
        await self._under_way.landed()

    def _known_answer(
        self, request: AnyRequest, fence: Fence, digest: str, *, is_under_way: bool
    ) -> StoredAnswer | None:
        """Return the answer that a command got before; one that is new is written down."""
        with about(request):
            demand_addressee(fence, self._fleet, self._pod)
            seen = self._journal.heard
            answer = judge_fence(seen, fence, digest, is_under_way=is_under_way)
            if answer is None and not is_under_way:
                self._journal.hear(fence, digest)
            return answer

    async def _answer(self, request: AnyRequest) -> StoredAnswer:
        """Have a command carried out; the answer of one with a fence is written down."""
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
    """Tell what a command about weights counts as."""
    if request.VERB in BESIDE:
        return None
    return Running(verb=request.VERB, operation=request.operation, version=request.version)
