"""A record of the journal."""

import logging
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rlfleet_contract.worker.problems import Problem
from rlfleet_contract.worker.report import Change, Exits, Stage
from rlfleet_contract.worker.selftest import SelfTest
from rlfleet_sidecar.proof.calibration import Calibration
from rlfleet_sidecar.state.fence_rules import SeenCommands
from rlfleet_sidecar.state.journal_log import last_record
from rlfleet_sidecar.state.required_tensors import RequiredTensors
from rlfleet_sidecar.state.stage_machine import StageEvent, State

_log = logging.getLogger(__name__)


class ChangeOwner(BaseModel):
    """The driver of the change under way."""

    model_config = ConfigDict(frozen=True)

    operation: str
    epoch: int | None
    """None for a caller without a fence."""
    ttl_s: float
    until: float | None = None
    """When it expires, on the wall clock; None during a command."""


class Loading(BaseModel):
    """A load under way."""

    model_config = ConfigDict(frozen=True)

    version: str
    operation: str


class JournalRecord(BaseModel):
    """All that the journal knows."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: State
    refusal: Problem | None = None
    """Why the last prepare failed."""
    failure: Problem | None = None
    """Why the last change failed."""
    loading: Loading | None = None
    """The version that a command is loading or proving; an engine's exit counts for it."""
    exits: Exits | None = None
    """How often the engine exited during the last load; None if it did not."""
    last_change: Change | None = None
    gauge: Calibration | None = None
    needs: RequiredTensors | None = None
    """What an engine of this pod reported of its boot; every boot reads the same."""
    self_test: SelfTest | None = None
    trainer_failure: Problem | None = None
    """Why a trainer's last update failed, or that it has not ended. While it is set, a resume must
    not open another version than the trainer expects. None after a success, and after its next
    pause."""
    broadcasting: bool = False
    """Whether a trainer has asked to broadcast by its own transfer engine, which is rejected. It
    may not have read the rejection; ends when it has a directory loaded."""
    group: str | None = None
    """The boot that is in a transfer group with its trainer."""
    closed_at: float | None = None
    """When the gate was closed for a change, on the wall clock, which survives a restart."""
    lead: ChangeOwner | None = None
    heard: SeenCommands = SeenCommands()


def read(path: Path) -> JournalRecord:
    """Return the file's last record; an absent or invalid file counts as an empty one."""
    nothing = JournalRecord(state=State(stage=Stage.DOWN))
    try:
        return JournalRecord.model_validate_json(last_record(path.read_bytes()) or b"")
    except FileNotFoundError:
        return nothing
    except ValidationError:
        _log.warning("Journal invalid, starting with an empty one", extra={"path": path})
        return nothing


def loading_after(
    record: JournalRecord, event: StageEvent, version: str | None, operation: str | None
) -> dict[str, Any]:
    """Return what an event changes of the load under way.

    If the engine has a new boot, its exit counts as one during that load.
    """
    if event is StageEvent.RELOADING:
        is_named = version is not None and operation is not None
        return {"loading": Loading(version=version, operation=operation) if is_named else None}
    if event is StageEvent.PROVED:
        return {"loading": None, "exits": None}
    if event is StageEvent.BOOTED and record.loading is not None:
        lost_in = record.state.lost_in or record.state.stage
        return load_ended(record, has_exited=lost_in in {Stage.LOADING, Stage.LOADED})
    return {}


def load_ended(record: JournalRecord, *, has_exited: bool) -> dict[str, Any]:
    """Return what a failed load changes."""
    loading, before = record.loading, record.exits
    if loading is None or not has_exited:
        return {"loading": None, "exits": None}
    is_again = before is not None and (before.version, before.operation) == (
        loading.version,
        loading.operation,
    )
    count = before.count + 1 if before is not None and is_again else 1
    exits = Exits(version=loading.version, operation=loading.operation, count=count)
    return {"loading": None, "exits": exits}
