"""The driver of the worker's change, and the change's TTL.

Without it vLLM would stay paused for ever. The rest is counted on the monotonic clock. The
journal has the wall clock's time, so that a restarted sidecar continues; it can only shorten
the rest. Nothing expires during a command.
"""

import time

from rlfleet_contract.paths import DEFAULT_TTL_S
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.journal_file import ChangeOwner

_WRITTEN_EVERY = 4
"""A heartbeat is written when the recorded deadline is older than this part of the TTL."""
_AGAIN_S = 5.0
"""Delay before the sidecar tries again to end a change."""
AT_REST = frozenset({Stage.OPEN, Stage.CLOSED})


class ChangeTTL:
    """The TTL of a change, renewed only by commands and heartbeats."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.taken = 0
        """How many commands were accepted so far."""
        self._deadline: float | None = None
        """On the monotonic clock; None during a command."""
        lead = journal.lead
        if lead is not None:
            rest_s = lead.ttl_s if lead.until is None else lead.until - time.time()
            rest_s = min(max(rest_s, 0.0), lead.ttl_s)
            self._deadline = time.monotonic() + rest_s
            if lead.until is None:
                # An exit during a command: later restarts must continue this countdown.
                journal.led(lead.model_copy(update={"until": time.time() + rest_s}))

    @property
    def rest_s(self) -> float | None:
        """Seconds until the sidecar ends the change; None while nothing can expire."""
        if self._journal.state.stage in AT_REST:
            return None
        if self._journal.lead is None:
            return 0.0
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    @property
    def operation(self) -> str | None:
        """The operation of a change whose driver has an epoch; else None."""
        lead = self._journal.lead
        is_led = lead is not None and lead.epoch is not None
        return lead.operation if lead is not None and is_led else None

    def take(self, operation: str, epoch: int | None, ttl_s: float | None) -> None:
        """Begin a command of a change; the journal's next write records it.

        A command without a TTL keeps that of its operation.
        """
        lead = self._journal.lead
        if ttl_s is None:
            same = lead is not None and lead.operation == operation
            ttl_s = lead.ttl_s if lead is not None and same else DEFAULT_TTL_S
        self._journal.lead = ChangeOwner(operation=operation, epoch=epoch, ttl_s=ttl_s)
        self._deadline = None
        self.taken += 1

    def renew(self) -> None:
        """Restart the countdown after a command or a heartbeat."""
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
        """Renew after a heartbeat; it counts only for a change whose driver has an epoch."""
        lead = self._journal.lead
        if lead is not None and lead.epoch is not None and self._deadline is not None:
            self.renew()

    def give_up(self) -> None:
        """Have the sidecar end the change now, whatever heartbeats come."""
        self._journal.led(None)

    def postpone(self) -> None:
        """Try to end the change again a little later."""
        self._deadline = time.monotonic() + _AGAIN_S
