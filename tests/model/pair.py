"""What can happen between the operator and one worker: both ends, and what is on the way.

Everything here depends on one worker and on what the operator knows of it alone, so it is
worked out once for each such pair, however many fleets hold it.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from tests.model import fence, sidecar
from tests.model.local import RESCUE, Answer, Command, Local, ViolationError
from tests.model.mind import Known, view_of
from tests.model.sidecar import Fates


class Fault(StrEnum):
    """What goes wrong; each may happen so many times in a run."""

    PATCH = "patch"
    """No fault but the user's doing: the spec asks for another version."""
    CRASH = "operator crash"
    """It may strike in the midst of a pass; all that the operator knew is lost."""
    STALE = "stale leader"
    """Another operator takes over, and the first acts once more on what it knew."""
    LOST = "lost message"
    """A request or a reply is lost, or a request arrives after its caller gave up."""
    TWICE = "message twice"
    SILENCE = "silent worker"
    """The sidecar or its engine does not answer for a while."""
    ENGINE = "engine death"
    SIDECAR = "sidecar death"
    POD = "pod death"
    EXPIRY = "expired time to live"
    OVERDUE = "overdue pause"
    """A gate is closed for a change for longer than a pause may take."""
    FAILURE = "failed step"
    """A step fails though nothing is wrong with the version."""


class Change(NamedTuple):
    """One thing that can happen, and what is afterwards."""

    what: str
    fault: Fault | None
    worker: Local
    known: Known
    is_free: bool = True
    """Whether it happens without a fault once faults have stopped."""


def changes(worker: Local, known: Known, fates: Fates) -> Iterator[Change]:
    """Return all that can happen next between the operator and this worker."""
    for change in _every(worker, known, fates):
        if (change.worker, change.known) != (worker, known):
            demand_sound(change.worker, fates)
            yield change


def _every(worker: Local, known: Known, fates: Fates) -> Iterator[Change]:
    if not worker.exists:
        return
    yield from _hearing(worker, known)
    yield from _calling(worker, known)
    yield from _mail(worker, known)
    yield from _working(worker, known, fates)
    yield from _dying(worker, known)


# --- the operator's side ------------------------------------------------------------------------


def _hearing(worker: Local, known: Known) -> Iterator[Change]:
    # A question carries the worker's driver's epoch, and which commands that has given up.
    worker = worker._replace(epoch=max(worker.epoch, known.epoch))
    if known.calling is None or known.is_in_vain:
        worker = fence.ended(worker, known.epoch)
    heard = known._replace(report=view_of(worker), is_reachable=True, is_strange=False)
    if known.is_in_vain:
        heard = heard._replace(calling=None, is_in_vain=False)
    yield Change("its report is read", None, worker, heard)
    if known.waits:
        yield Change("the time to try again has come", None, worker, known._replace(waits=False))
    if known.is_reachable:
        deaf = known._replace(is_reachable=False)
        yield Change("it cannot be asked", Fault.SILENCE, worker, deaf)


def _calling(worker: Local, known: Known) -> Iterator[Change]:
    command = known.calling
    if command is None or known.is_in_vain:
        return
    given_up = known._replace(calling=None, is_delivered=False, answer=None, waits=True)
    asked = given_up._replace(report=view_of(worker), is_reachable=True)
    deaf = given_up._replace(is_reachable=False)
    if known.verb is not Verb.PREPARE:
        # It may be changing for all that is known: the command stays under way.
        deaf = deaf._replace(calling=command, is_in_vain=True)
    if known.answer is not None:
        is_good, report = known.answer
        if is_good:
            asked = asked._replace(report=report, waits=False)
        after = worker if is_good else fence.ended(worker, known.epoch)
        yield Change("the answer arrives", None, after, asked)
    elif not known.is_delivered:
        after, answer = delivered(worker, command)
        told = known._replace(is_delivered=True)
        if answer is not None:
            told = told._replace(answer=(answer.is_good, view_of(after)))
        yield Change(f"{command} arrives", None, after, told)
        again = after._replace(mail=_sorted(*after.mail, command._replace(place=1)))
        yield Change(f"{command} arrives and is kept for later", Fault.TWICE, again, told)
        late = worker._replace(mail=_sorted(*worker.mail, command))
        ended = fence.ended(late, known.epoch)
        yield Change(f"{command} is late, the caller asks", Fault.LOST, ended, asked)
        yield Change(f"{command} is late, the caller asks in vain", Fault.LOST, late, deaf)
    if known.is_delivered:
        asked = given_up._replace(report=view_of(worker), is_reachable=True)
        ended = fence.ended(worker, known.epoch)
        yield Change("the answer is lost, the caller asks", Fault.LOST, ended, asked)
        yield Change("the answer is lost, the caller asks in vain", Fault.LOST, worker, deaf)


def _sorted(*mail: Command) -> tuple[Command, ...]:
    return tuple(sorted(mail, key=str))


def delivered(worker: Local, command: Command) -> tuple[Local, Answer | None]:
    """Let a command arrive: the fence first, and behind it the sidecar."""
    verdict = fence.judged(worker, command)
    if verdict is fence.Verdict.REFUSED:
        return worker, Answer(is_good=False)
    if verdict is fence.Verdict.REPEATED:
        return worker, Answer(is_good=True)
    if command.epoch < worker.epoch:
        raise ViolationError(f"{command} is taken, though epoch {worker.epoch} was seen")
    if command.pod != worker.pod:
        raise ViolationError(f"{command} was meant for another pod, and is taken")
    after, answer = sidecar.received(fence.noted(worker, command), command)
    return after._replace(is_answered=answer is not None), answer


def _mail(worker: Local, known: Known) -> Iterator[Change]:
    for place, command in enumerate(worker.mail):
        rest = worker.mail[:place] + worker.mail[place + 1 :]
        after, _ = delivered(worker._replace(mail=rest), command)
        yield Change(f"{command} arrives late or again", None, after, known, is_free=False)


# --- the worker's side --------------------------------------------------------------------------


def _working(worker: Local, known: Known, fates: Fates) -> Iterator[Change]:
    late = sidecar.waited(worker)
    yield Change("its pause takes too long", Fault.OVERDUE, late, known)
    if worker.running is None:
        yield Change("the sidecar looks", None, sidecar.looked(worker), known)
        rescued = sidecar.expired(worker)
        if rescued is not worker:
            demand_way_out(rescued, fates)
            yield Change("no request has reached it for its TTL", Fault.EXPIRY, rescued, known)
        silent = sidecar.silenced(worker)
        yield Change("its engine is silent for a while", Fault.SILENCE, silent, known)
        return
    step = worker.running.verbs[0] + (" (second half)" if worker.running.is_begun else "")
    yield _worked(worker, known, f"{step} continues", None, sidecar.advanced(worker, fates))
    is_ahead = worker.running.verbs[0] in {Verb.PAUSE, Verb.RESUME} and not worker.running.is_begun
    if worker.running.command.what == RESCUE or is_ahead:
        return
    for is_done, is_stuck, how in (
        (False, False, "fails"),
        (True, False, "is done, and said to have failed"),
        (False, True, "fails and cannot be undone"),
        (True, True, "is done, said to have failed, and cannot be undone"),
    ):
        result = sidecar.faulted(worker, is_done=is_done, is_stuck=is_stuck)
        yield _worked(worker, known, f"{step} {how}", Fault.FAILURE, result)


def _worked(
    before: Local,
    known: Known,
    what: str,
    fault: Fault | None,
    result: tuple[Local, Answer | None],
) -> Change:
    worker, answer = result
    if answer is not None:
        worker = worker._replace(is_answered=True)
    is_awaited = (
        known.calling is not None
        and known.is_delivered
        and known.answer is None
        and before.running is not None
        and known.calling.key == before.running.command.key
    )
    if answer is not None and is_awaited:
        known = known._replace(answer=(answer.is_good, view_of(worker)))
    return Change(what, fault, worker, known)


def _dying(worker: Local, known: Known) -> Iterator[Change]:
    if worker.engine.is_up:
        yield Change("its engine dies", Fault.ENGINE, sidecar.dead(worker), known)
    else:
        yield Change("its engine comes up", None, sidecar.risen(worker), known)
    told = known
    if known.is_delivered and known.answer is None:
        told = known._replace(answer=(False, view_of(worker)))
    yield Change("its sidecar is restarted", Fault.SIDECAR, sidecar.restarted(worker), told)
    yield Change("its pod dies", Fault.POD, gone(worker), Known(epoch=known.epoch))


def gone(worker: Local) -> Local:
    """Let the pod vanish, with all that it knew."""
    return Local(pod=worker.pod, exists=False, has_cache=worker.has_cache, mail=worker.mail)


def created(worker: Local) -> Local:
    """Let a pod come in place of the one that is gone."""
    return Local(pod=worker.pod + 1, has_cache=worker.has_cache, mail=worker.mail)


# --- what must be true of one worker --------------------------------------------------------------


def demand_sound(worker: Local, fates: Fates) -> None:
    """See that the worker serves what it has proved, and nothing else."""
    engine, state = worker.engine, worker.state
    if engine.is_up and engine.is_open:
        if not engine.is_tested or fates.get(engine.holds) != "Good":
            raise ViolationError(f"an engine answers clients with {engine.holds}, unproved")
        if state.stage in {Stage.LOADING, Stage.LOADED, Stage.DOUBT}:
            raise ViolationError(f"the gate is open in {state.stage}")
    is_seen = engine.is_up and state.boot == str(engine.boot)
    if is_seen and state.stage is Stage.OPEN and state.proved != engine.holds:
        raise ViolationError(f"proved is {state.proved}, the engine holds {engine.holds}")
    if state.stage is Stage.DOUBT and (state.serving or state.proved):
        raise ViolationError("an engine in doubt counts as serving")


def demand_way_out(worker: Local, fates: Fates) -> None:
    """See that a change without a driver ends: nothing stays paused."""
    for _ in range(4):
        if worker.running is None:
            break
        worker, _ = sidecar.advanced(worker, fates)
    is_stuck = worker.state.stage in {Stage.PAUSED, Stage.LOADED, Stage.PROVED, Stage.LOADING}
    is_there = worker.engine.is_up and worker.state.boot == str(worker.engine.boot)
    if worker.running is not None or (is_there and (is_stuck or worker.engine.is_paused)):
        raise ViolationError(f"its TTL has expired, and it stays in {worker.state.stage}")
