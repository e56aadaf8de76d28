"""What this worker knows of itself, on disk before anybody acts on it.

Each change of State goes through here: it is written, then it holds, then it is logged.
A sidecar that starts reads it as if it had lost the engine: what is still true shows when
the engine answers. A journal that cannot be read counts as none, and then nothing is
proved.

Nothing is fsynced, and that is safe: the file must survive this process, which the page
cache does. When the machine goes, the engine goes with it, and a journal of another boot
is void whatever it says. Two fsyncs a step would lengthen every pause by their time.
"""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from rlfleet_contract.models import Change, Stage
from rlfleet_contract.problems import CHECKPOINT_CODES, Problem
from rlfleet_contract.proof import Proof
from rlfleet_sidecar.logs import fields
from rlfleet_sidecar.swap import Event, State, step

_FILE = "worker.json"
_log = logging.getLogger(__name__)


class _Record(BaseModel):
    """The file's content."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: State
    refusal: Problem | None = None
    failure: Problem | None = None
    last_change: Change | None = None
    closed_at: float | None = None
    """When the gate was closed for a change, by the wall's clock: it outlives the process."""


class Journal:
    """The one place where a worker's state changes."""

    def __init__(self, directory: Path) -> None:
        self.session = uuid4().hex[:16]
        self._path = directory / _FILE
        record = _read(self._path)
        self._record = record.model_copy(update={"state": step(record.state, Event.LOST)})
        self._closed_at = _monotonic(record.closed_at)
        self.window_s = 0.0
        """How long the gate was closed for the last change that opened it again."""

    @property
    def state(self) -> State:
        """Where the worker stands."""
        return self._record.state

    @property
    def refusal(self) -> Problem | None:
        """Why the last prepare was refused."""
        return self._record.refusal

    @property
    def failure(self) -> Problem | None:
        """Why the last change failed."""
        return self._record.failure

    @property
    def last_change(self) -> Change | None:
        """The last change that ended well."""
        return self._record.last_change

    @property
    def paused_s(self) -> float | None:
        """How long the gate has been closed for a change; None while it is not."""
        return None if self._closed_at is None else time.monotonic() - self._closed_at

    def move(
        self,
        event: Event,
        *,
        boot: str | None = None,
        version: str | None = None,
        proof: Proof | None = None,
        operation: str | None = None,
    ) -> None:
        """Let the event happen; raises, and changes nothing, if it cannot."""
        before = self.state
        after = step(before, event, boot=boot, version=version, proof=proof)
        booted = {"failure": None} if event is Event.BOOTED else {}
        self._write(state=after, **booted, **self._clocked(event, after.stage))
        _log.info(
            "The worker's stage changed",
            extra=fields(
                event=event,
                before=before.stage,
                after=after.stage,
                boot=after.boot,
                installed=after.installed,
                proved=after.proved,
                operation=operation,
            ),
        )

    def prepared(self, version: str) -> None:
        """Note that a version was checked and can be reloaded."""
        self._write(state=replace(self.state, prepared=version), refusal=None)
        _log.info("A version was prepared", extra=fields(version=version))

    def refused(self, problem: Problem) -> None:
        """Note why a version was refused; whatever was prepared is so no longer if it was that."""
        state = self.state
        if problem.version == state.prepared:
            state = replace(state, prepared=None)
        self._write(state=state, refusal=problem)
        _log.info("A version was refused", extra=fields(**problem.model_dump()))

    def failed(self, problem: Problem) -> None:
        """Note why a change failed."""
        self._write(failure=problem)
        _log.warning("A change failed", extra=fields(**problem.model_dump()))
        if problem.code in CHECKPOINT_CODES:
            self.refused(problem)

    def changed(self, change: Change) -> None:
        """Note that a change ended well."""
        self._write(failure=None, last_change=change)
        _log.info("A change ended well", extra=fields(**change.model_dump()))

    def _clocked(self, event: Event, stage: Stage) -> dict[str, float | None]:
        """Time the window: it begins with the first pause and ends where no change is left."""
        if stage in {Stage.OPEN, Stage.CLOSED}:
            self.window_s = self.paused_s or 0.0
            self._closed_at = None
            return {"closed_at": None}
        if event is Event.PAUSING and self._closed_at is None:
            self._closed_at = time.monotonic()
            return {"closed_at": time.time()}
        return {}

    def _write(self, **update: Any) -> None:
        record = self._record.model_copy(update=update)
        if record == self._record:
            return
        draft = self._path.with_suffix(".new")
        draft.write_text(record.model_dump_json(), encoding="utf-8")
        draft.replace(self._path)
        self._record = record


def _monotonic(moment: float | None) -> float | None:
    """Tell a past moment of the wall's clock by the monotonic one."""
    return None if moment is None else time.monotonic() - max(0.0, time.time() - moment)


def _read(path: Path) -> _Record:
    nothing = _Record(state=State(stage=Stage.DOWN))
    try:
        return _Record.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return nothing
    except ValidationError:
        _log.warning("The journal cannot be read and counts as none", extra=fields(path=path))
        return nothing
