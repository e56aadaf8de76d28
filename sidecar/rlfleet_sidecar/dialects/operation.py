"""A trainer's change: the operation of its calls, and the result of its update.

It must stay true that a failed update is recorded: these trainers send a resume even then, and
it must be rejected.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from uuid import uuid4

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.errors import SidecarError, internal, log_fields
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import State
from rlfleet_sidecar.timeouts import within
from rlfleet_sidecar.vllm_client import EngineClient

_log = logging.getLogger(__name__)
_LOOK_S = 5.0


def operation_of(journal: Journal) -> str:
    """Return the operation of the trainer's change under way, or a new one."""
    lead = journal.lead
    led_by = None if lead is None else (lead.operation, lead.epoch)
    return rules.operation_of(led_by, rules.PREFIX + uuid4().hex[:12])


class TrainerChange:
    """The state between two calls of a trainer."""

    def __init__(self, journal: Journal, engine: EngineClient) -> None:
        self._journal = journal
        self._engine = engine
        self.preserving: str | None = None
        """The operation whose pause asked to keep the caches; lost in a restart, which then
        flushes them."""

    @property
    def state(self) -> State:
        """The worker's state."""
        return self._journal.state

    def operation(self) -> str:
        """Return the operation of the change under way, or a new one."""
        return operation_of(self._journal)

    async def keeps_caches(self, operation: str) -> bool:
        """Return whether the caches stay; if so, a new era separates entries of other weights.

        Entries without a salt are not separated, so caches with such entries do not stay.
        """
        if self.preserving != operation:
            return False
        async with within(Code.FLUSH_FAILED, _LOOK_S):
            gate = await self._engine.begin_era(self.state.boot or "")
        return not gate.has_unsalted

    def begun(self, what: str) -> None:
        """Record that an update begins, for a restart of the sidecar.

        Raises if the disk rejects it; then the update must not begin.
        """
        self._journal.trainer_begins(rules.not_ended(what))

    def ended_well(self) -> None:
        """Record a success, after which a resume is allowed."""
        self._journal.trainer_failed(None)

    def failed(self, error: SidecarError) -> None:
        """Record why an update failed."""
        problem = error.problem()
        self._journal.trainer_failed(problem)
        _log.info("Trainer's update failed", extra=log_fields(problem))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record an error inside as the update's."""
        try:
            yield
        except SidecarError as error:
            self.failed(error)
            raise
        except Exception as error:
            self.failed(internal(error))
            raise

    def refuse(self, why: str) -> NoReturn:
        """Reject an update of an unsupported kind; a resume after it is rejected too."""
        error = SidecarError(Code.INVALID_REQUEST, why)
        self.failed(error)
        raise error
