"""What the journal's file holds, and how it is read when a sidecar starts."""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rlfleet_contract.models import Change, Stage
from rlfleet_contract.problems import Problem
from rlfleet_contract.selftest import SelfTest
from rlfleet_sidecar.fence import Heard
from rlfleet_sidecar.gauge import Gauge
from rlfleet_sidecar.logs import fields
from rlfleet_sidecar.needs import Needs
from rlfleet_sidecar.swap import State

_log = logging.getLogger(__name__)


class Lead(BaseModel):
    """Who leads the change that the worker is in."""

    model_config = ConfigDict(frozen=True)

    operation: str
    epoch: int | None
    """None for whoever sends no fence."""
    ttl_s: float
    until: float | None = None
    """When it runs out, by the wall's clock; None while a command is being carried out."""


class Record(BaseModel):
    """The file's content."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    state: State
    refusal: Problem | None = None
    failure: Problem | None = None
    last_change: Change | None = None
    gauge: Gauge | None = None
    needs: Needs | None = None
    self_test: SelfTest | None = None
    trainer_failure: Problem | None = None
    broadcasting: bool = False
    group: str | None = None
    closed_at: float | None = None
    """When the gate was closed for a change, by the wall's clock: it outlives the process."""
    lead: Lead | None = None
    heard: Heard = Heard()


def read(path: Path) -> Record:
    """Read the file; one that is not there, or cannot be read, counts as none."""
    nothing = Record(state=State(stage=Stage.DOWN))
    try:
        return Record.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return nothing
    except ValidationError:
        _log.warning("The journal cannot be read and counts as none", extra=fields(path=path))
        return nothing
