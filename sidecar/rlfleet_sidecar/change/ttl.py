"""Who leads the change that this worker is in, and how long without a sign: the TTL.

vLLM alone stays paused for ever. The rest is counted by the monotonic clock; the wall's
stands in the journal, so that a restarted sidecar goes on counting, and it can only
shorten the rest. While a command is being carried out nothing runs out.
"""

import time

from rlfleet_contract.paths import DEFAULT_TTL_S
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.journal_file import Lead

_WRITTEN_EVERY = 4
"""A heartbeat is written down when what is written is this part of the TTL behind."""
_AGAIN_S = 5.0
"""When the sidecar tries once more to end a change that it could not end."""
AT_REST = frozenset({Stage.OPEN, Stage.CLOSED})


class Leadership:
    """The dead-man switch: kept by commands and heartbeats, and by nothing else."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.taken = 0
        """How many commands were taken so far; one that is refused is not."""
        self._deadline: float | None = None
        """By the monotonic clock; None while a command is being carried out."""
        lead = journal.lead
        if lead is not None:
            rest_s = lead.ttl_s if lead.until is None else lead.until - time.time()
            rest_s = min(max(rest_s, 0.0), lead.ttl_s)
            self._deadline = time.monotonic() + rest_s
            if lead.until is None:
                # Died within a command: the next start counts on from here, and not anew.
                journal.led(lead.model_copy(update={"until": time.time() + rest_s}))

    @property
    def rest_s(self) -> float | None:
        """Seconds until the sidecar acts of itself; None while nothing can run out."""
        if self._journal.state.stage in AT_REST:
            return None
        if self._journal.lead is None:
            return 0.0
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def operation(self) -> str | None:
        """Of the change that a driver with an epoch leads; None of anybody else's, or at rest."""
        lead = self._journal.lead
        is_led = lead is not None and lead.epoch is not None
        return lead.operation if lead is not None and is_led else None

    def take(self, operation: str, epoch: int | None, ttl_s: float | None) -> None:
        """Begin a command of a change; the next write of the journal tells it.

        A command that names no TTL goes on with that of its operation.
        """
        lead = self._journal.lead
        if ttl_s is None:
            same = lead is not None and lead.operation == operation
            ttl_s = lead.ttl_s if lead is not None and same else DEFAULT_TTL_S
        self._journal.lead = Lead(operation=operation, epoch=epoch, ttl_s=ttl_s)
        self._deadline = None
        self.taken += 1

    def renew(self) -> None:
        """Count anew: a command has ended, or its driver gave a sign."""
        lead = self._journal.lead
        if lead is None:
            return
        if self._journal.state.stage in AT_REST:
            self._journal.lead = None
            return
        self._deadline = time.monotonic() + lead.ttl_s
        until = time.time() + lead.ttl_s
        if lead.until is None or until - lead.until > lead.ttl_s / _WRITTEN_EVERY:
            self._journal.led(lead.model_copy(update={"until": until}))

    def beat(self) -> None:
        """Take a sign of whoever drives by epochs; it keeps no change of anybody else alive."""
        lead = self._journal.lead
        if lead is not None and lead.epoch is not None and self._deadline is not None:
            self.renew()

    def postpone(self) -> None:
        """Let a change that could not be ended be ended a little later."""
        self._deadline = time.monotonic() + _AGAIN_S
