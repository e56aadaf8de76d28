"""The change that a trainer leads: whose operation a call belongs to, and how its update ended.

It must stay true that an update which did not end well is written down: the resume which
such trainers send in any case must find it.
"""

import logging
from typing import NoReturn
from uuid import uuid4

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.dialects import rules
from rlfleet_sidecar.errors import SidecarError, log_fields
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import State
from rlfleet_sidecar.timeouts import within
from rlfleet_sidecar.vllm_client import Engine

_log = logging.getLogger(__name__)
_LOOK_S = 5.0


class TrainerChange:
    """What is known of it between one call and the next."""

    def __init__(self, journal: Journal, engine: Engine) -> None:
        self._journal = journal
        self._engine = engine
        self.preserving: str | None = None
        """The operation whose pause asked for the caches to be kept; forgotten, they are
        emptied."""

    @property
    def state(self) -> State:
        """How the worker stands."""
        return self._journal.state

    def operation(self) -> str:
        """Tell whose operation a call belongs to: the change under way, or a new one."""
        lead = self._journal.lead
        led_by = None if lead is None else (lead.operation, lead.epoch)
        return rules.operation_of(led_by, rules.PREFIX + uuid4().hex[:12])

    async def keeps_caches(self, operation: str) -> bool:
        """Tell whether the caches live on; then no other weights' work is found in them.

        Their trainer asked for no flush, and not to be served from old weights. What no salt
        separates would be read by them, so caches with such entries are not kept.
        """
        if self.preserving != operation:
            return False
        async with within(Code.FLUSH_FAILED, _LOOK_S):
            gate = await self._engine.begin_era(self.state.boot or "")
        return not gate.has_unsalted

    def begun(self, what: str) -> None:
        """Note that an update begins; a sidecar that dies in the midst of it must find it.

        Raises if that cannot be written: then it is not begun.
        """
        self._journal.trainer_begins(rules.not_ended(what))

    def ended_well(self) -> None:
        """Note that nothing stands against a resume."""
        self._journal.trainer_failed(None)

    def failed(self, error: SidecarError) -> None:
        """Note why an update did not end well."""
        problem = error.problem()
        self._journal.trainer_failed(problem)
        _log.info("A trainer's update did not end well", extra=log_fields(problem))

    def refuse(self, why: str) -> NoReturn:
        """Refuse an update of a kind that is not served; a resume after it is refused too."""
        error = SidecarError(Code.INVALID_REQUEST, why)
        self.failed(error)
        raise error
