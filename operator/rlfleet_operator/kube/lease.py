"""Leader election by a Lease, and the term in which this process may send requests.

core/election.py decides; this module reads and writes the Lease.
"""

import asyncio
import logging
import math
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol, assert_never

from rlfleet_operator.core import election
from rlfleet_operator.core.backoff import Backoff
from rlfleet_operator.core.election import (
    PACE,
    Candidate,
    LeaseRecord,
    ReadLease,
    Resign,
    Wait,
    WriteLease,
)
from rlfleet_operator.errors import Forbidden, Missing, NotLeading, OperatorError, Refused
from rlfleet_operator.kube.client import Json, KubeClient, object_path
from rlfleet_operator.kube.pod_cache import REFUSALS
from rlfleet_operator.metrics import Health

_log = logging.getLogger(__name__)
_CALL_S = 3.0
_FAREWELL_S = 2.0
"""The timeout for releasing the Lease, which expires anyway."""
_RIVALRY_S = 3 * PACE.lease_s
"""Two later drivers within this time are no restored backup but an operator with its own Lease."""
_REFUSED = Backoff(PACE.retry_s, 15.0)
"""Pauses of a candidate whose calls the API server refuses."""
_UNREACHABLE = Backoff(PACE.retry_s, 5.0)
"""Pauses of a candidate whose calls fail otherwise; while its term runs, only the first."""
_GRANT = "grant this ServiceAccount get, create and update of leases in that namespace"
_CHECK = "check RLFLEET_LEASE_NAMESPACE and RLFLEET_LEASE_NAME"

Clock = Callable[[], float]


def clock() -> float:
    """Return seconds that never jump, and that also count while the machine is suspended."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class LeaseTerm:
    """A term as leader. Once over it stays over; the next election starts another."""

    def __init__(self, until: float = math.inf, now: Clock = clock) -> None:
        """Lead until this moment of the clock ``now``."""
        self._until, self._now = until, now
        self.over = asyncio.Event()

    def demand(self) -> None:
        """Raise NotLeading unless the term lasts; call it right before sending."""
        if self._now() >= self._until:
            self.over.set()
        if self.over.is_set():
            raise NotLeading("this process no longer leads: its Lease was lost or expired")

    def extend(self, until: float) -> None:
        """Extend the term to this moment, unless it is over."""
        if self._now() < self._until:
            self._until = until
        else:
            self.over.set()

    def end(self) -> None:
        """End the term now."""
        self.over.set()


class Election(Protocol):
    """A way to become leader."""

    async def win(self) -> LeaseTerm:
        """Wait until this process leads."""

    async def hold(self, term: LeaseTerm) -> str | None:
        """Wait until the term is over.

        Returns what to do if another operator, which this election does not know, ended it.
        """

    async def release(self) -> None:
        """Let another process lead at once; no term may be used afterwards."""


class Unopposed:
    """No election: a single process, usually outside a cluster."""

    async def win(self) -> LeaseTerm:
        """Lead at once."""
        return LeaseTerm()

    async def hold(self, term: LeaseTerm) -> str:
        """Lead until a higher epoch proves another process."""
        await term.over.wait()
        return "set RLFLEET_LEASE_NAME in both"

    async def release(self) -> None:
        """Do nothing: no other process waits."""


class LeaseElection:
    """A candidate for a Lease."""

    def __init__(self, kube: KubeClient, namespace: str, name: str, health: Health) -> None:
        """Compete for this Lease; ``kube`` is used here only, so that no renewal queues.

        ``health`` shows why this process cannot lead.
        """
        self._kube, self._namespace, self._name = kube, namespace, name
        self._health = health
        self._raw: Json | None = None
        self._seen = Candidate(f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}")
        self._outdone_at = -math.inf
        self._refusals, self._failures = 0, 0

    async def win(self) -> LeaseTerm:
        """Wait until this process leads."""
        _log.info("Waiting for the Lease", extra={"lease": self._name, "identity": self._seen.me})
        while self._seen.renewed_at is None:
            await self._step()
        _log.info("Acquired the Lease", extra={"lease": self._name, "identity": self._seen.me})
        return LeaseTerm(election.may_send_until(self._seen.renewed_at))

    async def hold(self, term: LeaseTerm) -> str | None:
        """Renew the Lease until the term is over."""
        while self._seen.renewed_at is not None and not term.over.is_set():
            term.extend(election.may_send_until(self._seen.renewed_at))
            await self._step(term)
        term.end()
        has_rival = self._is_outdone_again(clock())
        self._seen = self._seen.resigned()
        _log.warning("Lost the Lease", extra={"lease": self._name, "identity": self._seen.me})
        return "remove one of the two" if has_rival else None

    def _is_outdone_again(self, now: float) -> bool:
        """Return whether a valid term was ended by a later driver, soon after another one."""
        held_at = self._seen.renewed_at
        if held_at is None or now >= election.may_send_until(held_at):
            return False
        is_again = now - self._outdone_at < _RIVALRY_S
        self._outdone_at = now
        return is_again

    async def release(self) -> None:
        """Release the Lease if this process holds it, even if it does not know that."""
        self._seen = self._seen.resigned()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                raw = await self._kube.get(self._path)
                if raw["spec"].get("holderIdentity") == self._seen.me:
                    raw["spec"]["holderIdentity"] = ""
                    await self._kube.replace(self._path, raw)
                    _log.info("Released the Lease", extra={"lease": self._name})
        except (OperatorError, TimeoutError) as error:
            extra = {"lease": self._name, "error": str(error)}
            _log.warning("Failed to release the Lease", extra=extra)
        await self._kube.close()

    @property
    def _path(self) -> str:
        return object_path(self._namespace, "leases", self._name)

    async def _step(self, term: LeaseTerm | None = None) -> None:
        now = clock()
        match election.decide(self._seen, now):
            case Wait(until):
                await _sleep(until - now, term)
            case ReadLease():
                await self._attempt(self._look)
            case WriteLease():
                await self._attempt(self._hold)
            case Resign():
                self._seen = self._seen.resigned()
            case other:
                assert_never(other)

    async def _attempt(self, call: Callable[[], Awaitable[None]]) -> None:
        now, limit_s = clock(), _CALL_S
        if self._seen.renewed_at is not None:
            limit_s = min(limit_s, election.may_send_until(self._seen.renewed_at) - now)
        try:
            async with asyncio.timeout(limit_s):
                await call()
        except (OperatorError, TimeoutError) as error:
            self._seen = self._seen.failed(clock(), self._note_failure(error))

    def _note_failure(self, error: Exception) -> float:
        """Record why a call failed; return the seconds until the next."""
        extra = {"lease": self._name, "error": str(error) or type(error).__name__}
        if not isinstance(error, Refused) or self._seen.renewed_at is not None:
            self._failures += 1
            if self._failures == 1:
                _log.warning("Failed to read or renew the Lease", extra=extra)
            return _UNREACHABLE.pause_s(1 if self._seen.renewed_at is not None else self._failures)
        self._refusals += 1
        way_out = _GRANT if isinstance(error, Forbidden) else _CHECK
        obstacle = f"Lease {self._namespace}/{self._name}: {error}; {way_out}"
        if self._refusals >= REFUSALS and obstacle != self._health.obstacle:
            self._health.obstacle = obstacle
            extra |= {"namespace": self._namespace, "action": way_out}
            _log.error("Cannot lead, the API server refuses the Lease", extra=extra)
        return _REFUSED.pause_s(self._refusals)

    def _allow(self) -> None:
        if self._failures:
            extra = {"lease": self._name, "failures": self._failures}
            _log.info("Read or renewed the Lease again", extra=extra)
        self._refusals, self._failures, self._health.obstacle = 0, 0, None

    async def _look(self) -> None:
        try:
            self._raw = await self._kube.get(self._path)
        except Missing:
            self._raw = None
        self._seen = self._seen.saw(_record(self._raw), clock())
        if self._seen.is_held_by_another:
            self._allow()  # Whether it may write shows only once the Lease is free.

    async def _hold(self) -> None:
        sent_at = clock()
        if self._raw is None:
            path = object_path(self._namespace, "leases")
            raw = await self._kube.create(path, _new(self._name, self._seen.me))
        else:
            raw = await self._kube.replace(self._path, _renewed(self._raw, self._seen.me))
        self._raw = raw
        record = _record(raw)
        if record is not None:
            self._seen = self._seen.wrote(record, sent_at, clock())
            self._allow()


async def _sleep(seconds: float, term: LeaseTerm | None) -> None:
    """Sleep, but at most until the term is over."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await (asyncio.Event() if term is None else term.over).wait()
    except TimeoutError:
        pass


def _record(raw: Json | None) -> LeaseRecord | None:
    if raw is None:
        return None
    spec = raw.get("spec") or {}
    return LeaseRecord(
        version=raw["metadata"]["resourceVersion"],
        holder=spec.get("holderIdentity") or "",
        lease_s=float(spec.get("leaseDurationSeconds") or PACE.lease_s),
    )


def _new(name: str, me: str) -> Json:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"leaseTransitions": -1},
    }
    return _renewed(lease, me)


def _renewed(raw: Json, me: str) -> Json:
    """Return the Lease with ``me`` as holder; its times are for people, no decision uses them."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = dict(raw.get("spec") or {})
    if spec.get("holderIdentity") != me:
        spec |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", -1) + 1}
    spec |= {
        "holderIdentity": me,
        "leaseDurationSeconds": round(PACE.lease_s),
        "renewTime": now,
    }
    return raw | {"spec": spec}
