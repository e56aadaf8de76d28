"""The worker's state, written to disk before the sidecar acts on it.

Each change of State goes through here: it is written, then it holds, then it is logged.
On a full disk nothing begins: an event that must be written before an act is rejected. What
has already happened holds even if it cannot be written, and is written later. Until then the
file has an earlier stage, never a better one.

A sidecar that starts reads it as if it had lost the engine, and learns what is still true when
the engine answers. An unreadable journal counts as empty: nothing is proved.

Only a new epoch is synced, and that is safe. Everything else must survive this process, and
the page cache does. A crash of the node ends the engine too, which makes the record of its
boot void; but an epoch belongs to the driver, elsewhere. Two syncs per step would lengthen
every pause.
"""

import errno
import logging
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from rlfleet_contract.worker.fence import Fence, Place
from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code, Problem
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Change, Stage
from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_sidecar.errors import SidecarError, log_fields
from rlfleet_sidecar.proof.calibration import Calibration
from rlfleet_sidecar.state.fence_rules import SeenCommands, StoredAnswer
from rlfleet_sidecar.state.journal_file import (
    ChangeOwner,
    JournalRecord,
    load_ended,
    loading_after,
    read,
)
from rlfleet_sidecar.state.journal_log import JournalLog
from rlfleet_sidecar.state.news import News
from rlfleet_sidecar.state.required_tensors import RequiredTensors
from rlfleet_sidecar.state.stage_machine import AHEAD, StageEvent, State, step

_FILE = "worker.json"
_log = logging.getLogger(__name__)


class Journal:
    """The one place where a worker's state changes."""

    def __init__(self, directory: Path) -> None:
        self.session = uuid4().hex[:16]
        self._path = directory / _FILE
        self._log = JournalLog(self._path)
        record = read(self._path)
        self.record = record.model_copy(update={"state": step(record.state, StageEvent.LOST)})
        """The last record; only methods of this class replace it."""
        self._closed_at = _monotonic(record.closed_at)
        self.lead = record.lead
        """The change's driver; written with the next change of the stage."""
        self._unwritten: OSError | None = None
        """Why the file is not up to date; None if it is."""
        self.news = News()
        """Announces each record."""
        self.window_s = 0.0
        """Length of the last window, in seconds."""
        self.withheld_s = 0.0
        """How long the replies to requests that passed on trial waited after that window."""
        self._admitted_s: float | None = None
        """Length of the window under way, if it ended by a trial that admits requests."""

    @property
    def state(self) -> State:
        """The worker's current state."""
        return self.record.state

    @property
    def is_behind(self) -> bool:
        """Whether the file is not up to date."""
        return self._unwritten is not None

    def broadcast(self, *, is_meant: bool) -> None:
        """Record that a trainer asked for a broadcast, or had a directory loaded.

        The former holds even if the disk rejects it, because such a trainer may ignore that error
        too.
        """
        self._write(broadcasting=is_meant)
        if is_meant:
            self._demand_written()

    def grouped(self, boot: str | None) -> None:
        """Record the boot that is in a transfer group; None: no boot."""
        self._write(is_ahead=boot is None, group=boot)

    def gauged(self, gauge: Calibration) -> None:
        """Record the calibration of a boot."""
        self._write(gauge=gauge)
        _log.info("Engine calibrated", extra=asdict(gauge))

    def learned(self, needs: RequiredTensors) -> None:
        """Record which of the base model's tensors the engine has read."""
        self._write(needs=needs)
        _log.info(
            "Tensors of the boot reported",
            extra={"boot": needs.boot, "optional": len(needs.optional), "tied": needs.tied},
        )

    def self_tested(self, test: SelfTest) -> None:
        """Record a self-test; its begin is on disk before its first reload."""
        self._write(is_ahead=test.passed is None, self_test=test)
        _log.info("Self-test recorded", extra=test.model_dump())

    @property
    def paused_s(self) -> float | None:
        """How long the gate has been closed for a change; None while it is not."""
        return None if self._closed_at is None else time.monotonic() - self._closed_at

    @property
    def seen(self) -> SeenCommands:
        """The commands seen, by the fence rules."""
        return self.record.heard

    def observe_epoch(self, epoch: int) -> bool:
        """Record an epoch; returns whether it is the highest seen.

        While the disk rejects it, no heartbeat counts: no command could be recorded either, and
        the change under way must end.
        """
        try:
            self._note(self.seen.at(epoch))
        except SidecarError:
            return False
        return epoch == self.seen.epoch

    def over(self, place: Place) -> None:
        """Record up to where commands are cancelled; a full disk rejects commands anyway."""
        self._note(self.seen.ending(place), is_ahead=False)

    def receive(self, fence: Fence, digest: str) -> None:
        """Record a command before it has an effect."""
        self._note(self.seen.receiving(fence, digest))

    def answer(self, fence: Fence, answer: StoredAnswer) -> None:
        """Record a command's answer."""
        self._note(self.seen.answering(fence, answer), is_ahead=False)

    def led(self, lead: ChangeOwner | None) -> None:
        """Record the change's driver and deadline."""
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
        loads: int = 0,
    ) -> None:
        """Apply an event; raises without a change if the table forbids it or the disk is full."""
        before = self.state
        after = step(before, event, boot=boot, version=version, proof=proof, loads=loads)
        booted = {"failure": None} if event is StageEvent.BOOTED else {}
        clocked = self._clocked(event, before.stage, after.stage)
        loading = loading_after(self.record, event, version, operation)
        self._write(is_ahead=event in AHEAD, state=after, **booted, **clocked, **loading)
        if clocked.get("closed_at") is not None:
            self._closed_at = time.monotonic()
        _log.info(
            "Stage changed",
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
        """Record that a version is checked and ready to load."""
        self._write(state=replace(self.state, prepared=version), refusal=None)
        _log.info("Version prepared", extra={"version": version})

    def refused(self, problem: Problem) -> None:
        """Record why a version was rejected; it no longer counts as prepared."""
        state = self.state
        if problem.version == state.prepared:
            state = replace(state, prepared=None)
        self._write(state=state, refusal=problem)
        _log.info("Version rejected", extra=log_fields(problem))

    def failed(self, problem: Problem, *, has_exited: bool | None = None) -> None:
        """Record why a change failed; of a load, whether the engine exited during it."""
        loads = {} if has_exited is None else load_ended(self.record, has_exited=has_exited)
        self._write(failure=problem, **loads)
        _log.warning("Change failed", extra=log_fields(problem))
        if problem.code in CHECKPOINT_CODES:
            self.refused(problem)

    def trainer_begins(self, problem: Problem) -> None:
        """Record, before it has an effect, the failure that holds until an update has ended."""
        self._write(trainer_failure=problem)
        self._demand_written()

    def trainer_failed(self, problem: Problem | None) -> None:
        """Record why a trainer's update failed; None: it succeeded."""
        self._write(trainer_failure=problem)

    def changed(self, change: Change) -> None:
        """Record that a change succeeded."""
        self._write(failure=None, last_change=change)
        _log.info("Change succeeded", extra=change.model_dump())

    def admitted(self) -> None:
        """Note that requests pass on trial; the disk need not know."""
        self._admitted_s = self.paused_s

    def catch_up(self) -> None:
        """Write the record again after a failure."""
        self._put(self.record, is_ahead=False)

    def _clocked(self, event: StageEvent, before: Stage, after: Stage) -> dict[str, float | None]:
        """Return the window's begin, at the first pause, or its end, at Open and Closed.

        A change out of Doubt has its own window, because requests did not wait all that time.
        """
        if event is StageEvent.RELOADING:
            self._admitted_s = None
        if after in {Stage.OPEN, Stage.CLOSED}:
            paused_s = self.paused_s or 0.0
            self.window_s = paused_s if self._admitted_s is None else self._admitted_s
            self.withheld_s, self._admitted_s = paused_s - self.window_s, None
            self._closed_at = self.lead = None
            return {"closed_at": None}
        is_first = event is StageEvent.PAUSING and self._closed_at is None
        if is_first or (event is StageEvent.RELOADING and before is Stage.DOUBT):
            return {"closed_at": time.time()}
        return {}

    def _note(self, heard: SeenCommands, *, is_ahead: bool = True) -> None:
        """Write the commands seen; a new epoch is synced for a crash of the node."""
        is_new = heard.epoch != self.seen.epoch
        record = self.record.model_copy(update={"lead": self.lead, "heard": heard})
        self._put(record, is_ahead=is_ahead, lasting=is_new)
        if is_new:
            _log.info("Higher epoch seen", extra={"epoch": heard.epoch})

    def _write(self, *, is_ahead: bool = False, **update: Any) -> None:
        self._put(self.record.model_copy(update={"lead": self.lead} | update), is_ahead=is_ahead)

    def _put(self, record: JournalRecord, *, is_ahead: bool, lasting: bool = False) -> None:
        if record == self.record and not self.is_behind:
            return
        try:
            # An earlier write that failed may have had a new epoch.
            is_lasting = lasting or self.is_behind
            self._log.write(record.model_dump_json(), lasting=is_lasting)
        except OSError as error:
            if not self.is_behind:
                extra = {"path": self._path, "error": str(error)}
                _log.error("Failed to write the journal", extra=extra)
            self._unwritten = error
            if is_ahead:
                self._demand_written()
        else:
            self._unwritten = None
        self.record = record
        self.news.announce()

    def _demand_written(self) -> None:
        error = self._unwritten
        if error is not None:
            is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            way_out = (
                "the node's disk or inodes are used up (df, df -i): delete files or images on it"
                if is_full
                else "check the node's disk (dmesg), then delete the pod"
            )
            raise SidecarError(
                Code.INTERNAL,
                f"failed to write the sidecar's journal {self._path} ({error.strerror or error});"
                f" {way_out}",
            ) from error


def _monotonic(moment: float | None) -> float | None:
    """Convert a past time of the wall clock to the monotonic clock."""
    return None if moment is None else time.monotonic() - max(0.0, time.time() - moment)
