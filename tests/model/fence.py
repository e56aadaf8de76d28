"""The real fence, in front of the model's sidecar.

Sequences grow for ever, so only how a command stands to the last one is kept of them:
2 later, 1 that very one, 0 an earlier one that never arrived.
"""

from enum import Enum

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.fence import Fence
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.fence_rules import (
    SeenCommand,
    SeenCommands,
    StoredAnswer,
    demand_addressee,
    judge_fence,
)
from tests.model.local import Command, Local

LATER, LAST = 2, 1
_FLEET, _DIGEST = "f-1", "d"


class Verdict(Enum):
    """What becomes of a command."""

    ADMITTED = "admitted"
    REPEATED = "repeated"
    REFUSED = "refused"


def judged(worker: Local, command: Command) -> Verdict:
    """Return whether the sidecar takes a command."""
    fence = Fence(fleet=_FLEET, pod=str(command.pod), epoch=command.epoch, sequence=command.place)
    is_last = command.place == LAST and command.epoch == worker.epoch
    is_under_way = is_last and worker.running is not None and not worker.is_answered
    try:
        demand_addressee(fence, _FLEET, str(worker.pod))
        heard = _seen(worker)
        if command.is_over:
            heard = heard.ending(fence.place)
        answer = judge_fence(heard, fence, _DIGEST, is_under_way=is_under_way)
    except SidecarError:
        return Verdict.REFUSED
    return Verdict.ADMITTED if answer is None else Verdict.REPEATED


def _seen(worker: Local) -> SeenCommands:
    if not worker.epoch:
        return SeenCommands()
    answer = StoredAnswer(status=200, body="") if worker.is_answered else None
    last = SeenCommand(sequence=LAST, digest=_DIGEST, answer=answer)
    return SeenCommands(epoch=worker.epoch, sequence=LAST, orders=(last,))


def ended(worker: Local, epoch: int) -> Local:
    """Record that this driver's changes are over: a command on its way comes too late."""
    mail = tuple(
        m._replace(is_over=m.place > 0) if m.epoch == epoch and m.what != Verb.PREPARE else m
        for m in worker.mail
    )
    return worker._replace(mail=mail, epoch=max(worker.epoch, epoch))


def noted(worker: Local, command: Command) -> Local:
    """Note a command that is taken, and how what is on its way stands to it."""
    mail = tuple(
        m._replace(place=0, is_over=False)
        if m.epoch == command.epoch and (m.place < LATER or m.is_over)
        else m
        for m in worker.mail
    )
    epoch = max(worker.epoch, command.epoch)
    return worker._replace(mail=mail, epoch=epoch, is_answered=False)
