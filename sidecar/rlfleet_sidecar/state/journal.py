"""What this worker knows of itself, on disk before anybody acts on it.

Each change of State goes through here: it is written, then it holds, then it is logged.
On a disk that takes no more, nothing is begun: what has to be written ahead of an act is
refused. What has been seen or done holds though it cannot be written, and is written as soon
as it can be: what stands on disk meanwhile is an earlier stage, and never a better one.

A sidecar that starts reads it as if it had lost the engine: what is still true shows when
the engine answers. A journal that cannot be read counts as none, and then nothing is
proved.

Only a new epoch is fsynced, and that is safe: the rest must survive this process, which
the page cache does. When the machine goes, the engine goes with it, and what a journal
says of another boot is void; an epoch is about the driver, which lives elsewhere. Two
fsyncs a step would lengthen every pause by their time.
"""

import logging
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code, Problem
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Change, Exits, Stage
from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_sidecar.atomic_file import write_whole
from rlfleet_sidecar.errors import SidecarError, log_fields
from rlfleet_sidecar.proof.calibration import Gauge
from rlfleet_sidecar.state.fence_rules import SeenCommands, StoredAnswer
from rlfleet_sidecar.state.journal_file import JournalRecord, Lead, load_ended, loading_after, read
from rlfleet_sidecar.state.required_tensors import Needs
from rlfleet_sidecar.state.stage_machine import AHEAD, StageEvent, State, step

_FILE = "worker.json"
_log = logging.getLogger(__name__)


class Journal:
    """The one place where a worker's state changes."""

    def __init__(self, directory: Path) -> None:
        self.session = uuid4().hex[:16]
        self._path = directory / _FILE
        record = read(self._path)
        self._record = record.model_copy(update={"state": step(record.state, StageEvent.LOST)})
        self._closed_at = _monotonic(record.closed_at)
        self.lead = record.lead
        """Who leads the change; written down with the next change of the stage."""
        self._unwritten: OSError | None = None
        """Why the file lacks something that holds; None if it lacks nothing."""
        self.window_s = 0.0
        """How long the gate was closed for the last change that opened it again."""

    @property
    def state(self) -> State:
        """Where the worker stands."""
        return self._record.state

    @property
    def is_behind(self) -> bool:
        """Whether the file lacks something that holds."""
        return self._unwritten is not None

    @property
    def refusal(self) -> Problem | None:
        """Why the last prepare was refused."""
        return self._record.refusal

    @property
    def failure(self) -> Problem | None:
        """Why the last change failed."""
        return self._record.failure

    @property
    def trainer_failure(self) -> Problem | None:
        """Why the last update that a trainer asked for did not end well, or has not yet.

        None after one that did, and after a trainer's next pause: whatever else is loaded
        meanwhile is not what that trainer means to resume.
        """
        return self._record.trainer_failure

    @property
    def broadcasting(self) -> bool:
        """Whether a trainer means to send by an engine of its own, which is not served.

        It was told so, and may not have heard; ends when it has a directory loaded.
        """
        return self._record.broadcasting

    def broadcast(self, *, is_meant: bool) -> None:
        """Note that a trainer asked for that, or had a directory loaded.

        The first holds even where it is refused because it cannot be written: such a trainer
        may pass over that too.
        """
        self._write(broadcasting=is_meant)
        if is_meant:
            self._demand_written()

    @property
    def group(self) -> str | None:
        """The boot of the engine that is in a group with its trainer; None if none is."""
        return self._record.group

    def grouped(self, boot: str | None) -> None:
        """Note that this boot is in a group; None: no more, or not yet."""
        self._write(is_ahead=boot is None, group=boot)

    @property
    def last_change(self) -> Change | None:
        """The last change that ended well."""
        return self._record.last_change

    @property
    def gauge(self) -> Gauge | None:
        """What was measured of the engine that was seen last."""
        return self._record.gauge

    def gauged(self, gauge: Gauge) -> None:
        """Note what was measured of a start of the engine."""
        self._write(gauge=gauge)
        _log.info("The engine was measured", extra=asdict(gauge))

    @property
    def needs(self) -> Needs | None:
        """What an engine of this pod said of its boot; another boot reads the same."""
        return self._record.needs

    def learned(self, needs: Needs) -> None:
        """Note which of the boot model's tensors the engine read."""
        self._write(needs=needs)
        _log.info(
            "The engine reported what it read at its boot",
            extra={"boot": needs.boot, "optional": len(needs.optional), "tied": needs.tied},
        )

    @property
    def self_test(self) -> SelfTest | None:
        """What the engine showed of its own reload."""
        return self._record.self_test

    def self_tested(self, test: SelfTest) -> None:
        """Record a self-test; one that begins is on disk before its first reload."""
        self._write(is_ahead=test.passed is None, self_test=test)
        _log.info("The engine's reload was tested", extra=test.model_dump())

    @property
    def paused_s(self) -> float | None:
        """How long the gate has been closed for a change; None while it is not."""
        return None if self._closed_at is None else time.monotonic() - self._closed_at

    @property
    def heard(self) -> SeenCommands:
        """Whose commands were heard."""
        return self._record.heard

    def hear_of(self, epoch: int) -> bool:
        """Note an epoch; tells whether it is the highest that was seen.

        No sign of life counts while none can be noted: nothing could be asked for either, and
        the change that is under way has to end.
        """
        try:
            self._note(self.heard.at(epoch))
        except SidecarError:
            return False
        return epoch == self.heard.epoch

    def over(self, place: Place) -> None:
        """Note up to where commands are over; while nothing can be written none is heard anyway."""
        self._note(self.heard.ending(place), is_ahead=False)

    def hear(self, fence: Fence, digest: str) -> None:
        """Note a command before anything is done for it."""
        self._note(self.heard.hearing(fence, digest))

    def answer(self, fence: Fence, answer: StoredAnswer) -> None:
        """Note what a command was answered."""
        self._note(self.heard.answering(fence, answer), is_ahead=False)

    def led(self, lead: Lead) -> None:
        """Note who leads the change, and until when without another sign."""
        self.lead = lead
        self._write()

    def move(
        self,
        event: StageEvent,
        *,
        boot: str | None = None,
        version: str | None = None,
        proof: Proof | None = None,
        operation: str | None = None,
    ) -> None:
        """Let the event happen; raises, and changes nothing, if it cannot."""
        before = self.state
        after = step(before, event, boot=boot, version=version, proof=proof)
        booted = {"failure": None} if event is StageEvent.BOOTED else {}
        clocked = self._clocked(event, before.stage, after.stage)
        loads = loading_after(self._record, event, version, operation)
        self._write(is_ahead=event in AHEAD, state=after, **booted, **clocked, **loads)
        if clocked.get("closed_at") is not None:
            self._closed_at = time.monotonic()
        _log.info(
            "The worker's stage changed",
            extra={
                "event": event,
                "before": before.stage,
                "after": after.stage,
                "boot": after.boot,
                "installed": after.installed,
                "proved": after.proved,
                "operation": operation,
            },
        )

    def prepared(self, version: str) -> None:
        """Note that a version was checked and can be reloaded."""
        self._write(state=replace(self.state, prepared=version), refusal=None)
        _log.info("A version was prepared", extra={"version": version})

    def refused(self, problem: Problem) -> None:
        """Note why a version was refused; whatever was prepared is so no longer if it was that."""
        state = self.state
        if problem.version == state.prepared:
            state = replace(state, prepared=None)
        self._write(state=state, refusal=problem)
        _log.info("A version was refused", extra=log_fields(problem))

    @property
    def exits(self) -> Exits | None:
        """How often the engine ended in the load that was tried last; None if it did not."""
        return self._record.exits

    @property
    def is_loading(self) -> bool:
        """Whether a load that a command began has not ended, as far as is noted."""
        return self._record.loading is not None

    def failed(self, problem: Problem, *, has_exited: bool | None = None) -> None:
        """Note why a change failed; of a load, whether the engine's process ended in it."""
        loads = {} if has_exited is None else load_ended(self._record, has_exited=has_exited)
        self._write(failure=problem, **loads)
        _log.warning("A change failed", extra=log_fields(problem))
        if problem.code in CHECKPOINT_CODES:
            self.refused(problem)

    def trainer_begins(self, problem: Problem) -> None:
        """Note, before anything is done, what stands of a trainer's update until it has ended."""
        self._write(trainer_failure=problem)
        self._demand_written()

    def trainer_failed(self, problem: Problem | None) -> None:
        """Note why a trainer's update did not end well; None: it did."""
        self._write(trainer_failure=problem)

    def changed(self, change: Change) -> None:
        """Note that a change ended well."""
        self._write(failure=None, last_change=change)
        _log.info("A change ended well", extra=change.model_dump())

    def catch_up(self) -> None:
        """Write what could not be written before."""
        self._put(self._record, is_ahead=False)

    def _clocked(self, event: StageEvent, before: Stage, after: Stage) -> dict[str, float | None]:
        """Time the window: it begins with the first pause and ends where no change is left.

        The way out of doubt is a change of its own: nobody has waited for it all the while.
        """
        if after in {Stage.OPEN, Stage.CLOSED}:
            self.window_s = self.paused_s or 0.0
            self._closed_at = self.lead = None
            return {"closed_at": None}
        is_first = event is StageEvent.PAUSING and self._closed_at is None
        if is_first or (event is StageEvent.RELOADING and before is Stage.DOUBT):
            return {"closed_at": time.time()}
        return {}

    def _note(self, heard: SeenCommands, *, is_ahead: bool = True) -> None:
        """Write down what was heard; a new epoch so that it outlives the machine too."""
        is_new = heard.epoch != self.heard.epoch
        record = self._record.model_copy(update={"lead": self.lead, "heard": heard})
        self._put(record, is_ahead=is_ahead, lasting=is_new)
        if is_new:
            _log.info("A higher epoch was seen", extra={"epoch": heard.epoch})

    def _write(self, *, is_ahead: bool = False, **update: Any) -> None:
        self._put(self._record.model_copy(update={"lead": self.lead} | update), is_ahead=is_ahead)

    def _put(self, record: JournalRecord, *, is_ahead: bool, lasting: bool = False) -> None:
        if record == self._record and not self.is_behind:
            return
        try:
            # What could not be written before may hold a new epoch.
            is_lasting = lasting or self.is_behind
            write_whole(self._path, record.model_dump_json(), lasting=is_lasting)
        except OSError as error:
            self._fall_behind(error)
            if is_ahead:
                self._demand_written()
        else:
            self._unwritten = None
        self._record = record

    def _fall_behind(self, error: OSError) -> None:
        if not self.is_behind:
            _log.error(
                "The journal cannot be written", extra={"path": self._path, "error": str(error)}
            )
        self._unwritten = error

    def _demand_written(self) -> None:
        error = self._unwritten
        if error is not None:
            raise SidecarError(
                Code.INTERNAL,
                f"the sidecar's journal {self._path} cannot be written"
                f" ({error.strerror or error}), so nothing is begun: free the node's disk",
            ) from error


def _monotonic(moment: float | None) -> float | None:
    """Tell a past moment of the wall's clock by the monotonic one."""
    return None if moment is None else time.monotonic() - max(0.0, time.time() - moment)
