"""Several candidates, one Lease; sleeps, slow and fast clocks, lost calls, crashes.

Time here is real time; each candidate sees only its own clock. A call reaches the
server some time after it was sent, and its reply comes some time later, or never.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from rlfleet_operator.core.election import (
    Candidate,
    LeaseRecord,
    ReadLease,
    Resign,
    Wait,
    WriteLease,
    decide,
    may_send_until,
)

CALL_LIMIT_S = 3.0
FAULTY_S, QUIET_S = 200.0, 45.0
QUICK = settings(max_examples=150, deadline=None)


@dataclass
class Member:
    """One process: a clock of its own, and what it may do."""

    candidate: Candidate
    rate: float
    offset: float
    life: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    """From when until when, in real time, it believes that it may send."""

    def clock(self, t: float) -> float:
        return self.offset + t * self.rate

    def real(self, moment: float) -> float:
        return (moment - self.offset) / self.rate

    def stop_sending(self, t: float) -> None:
        self.spans = [(a, max(a, min(b, t))) for a, b in self.spans]


class Election:
    """The server's one object, and everybody's next events in order of real time."""

    def __init__(self, chance: random.Random, rates: list[float]) -> None:
        self.chance = chance
        self.record: LeaseRecord | None = None
        self.is_faulty = True
        self._versions = itertools.count(1)
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self.members = [
            Member(Candidate(f"m{n}"), rate, chance.uniform(-1e3, 1e3))
            for n, rate in enumerate(rates)
        ]
        for member in self.members:
            self._turn_at(chance.uniform(0, 3), member)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            t, _, event = heapq.heappop(self._events)
            event(t)

    def leaders(self, t: float) -> list[str]:
        return [m.candidate.me for m in self.members if m.spans and m.spans[-1][1] > t]

    def overlaps(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        for one, other in itertools.combinations(self.members, 2):
            for a, b in itertools.product(one.spans, other.spans):
                if max(a[0], b[0]) < min(a[1], b[1]):
                    yield a, b

    def _at(self, t: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (t, next(self._order), event))

    def _turn_at(self, t: float, member: Member) -> None:
        """Let it decide then, or later: a process may be frozen at any time."""
        if self.is_faulty and self.chance.random() < 0.05:
            t += self.chance.expovariate(1 / 8)
        life = member.life
        self._at(t, lambda now: self._turn(now, member) if member.life == life else None)

    def _turn(self, t: float, member: Member) -> None:
        if self.is_faulty and self.chance.random() < 0.01:
            self._crash(t, member)
            return
        if self.is_faulty and member.candidate.renewed_at and self.chance.random() < 0.02:
            self._give_back(t, member)
            return
        now = member.clock(t)
        match decide(member.candidate, now):
            case Wait(until):
                self._turn_at(max(member.real(until), t + 1e-6), member)
            case Resign():
                member.stop_sending(t)
                member.candidate = member.candidate.resigned()
                self._turn_at(t, member)
            case ReadLease():
                self._call(t, member, lambda: (True, self.record), self._looked)
            case WriteLease():
                self._hold(t, member)

    def _hold(self, t: float, member: Member) -> None:
        before, me, sent_at = member.candidate.record, member.candidate.me, member.clock(t)

        def write() -> tuple[bool, LeaseRecord | None]:
            if self.record != before:
                return False, None
            self.record = LeaseRecord(str(next(self._versions)), me)
            return True, self.record

        def done(at: float, who: Member, written: LeaseRecord | None) -> None:
            assert written is not None
            who.candidate = who.candidate.wrote(written, sent_at, who.clock(at))
            who.spans.append((at, max(at, who.real(may_send_until(sent_at)))))

        self._call(t, member, write, done)

    def _looked(self, t: float, member: Member, found: LeaseRecord | None) -> None:
        member.candidate = member.candidate.saw(found, member.clock(t))

    def _call(
        self,
        t: float,
        member: Member,
        serve: Callable[[], tuple[bool, LeaseRecord | None]],
        done: Callable[[float, Member, LeaseRecord | None], None],
    ) -> None:
        life, fault = member.life, self.chance.random() if self.is_faulty else 1.0
        there, back = (self.chance.expovariate(10) for _ in range(2))
        if fault < 0.05:
            there += self.chance.uniform(0, 20)

        def reply(*, is_ok: bool, found: LeaseRecord | None) -> Callable[[float], None]:
            def come(at: float) -> None:
                if member.life != life:
                    return
                is_late = at - t > CALL_LIMIT_S
                if is_ok and not is_late and not 0.05 <= fault < 0.15:
                    done(at, member, found)
                else:
                    member.candidate = member.candidate.failed(member.clock(at))
                self._turn_at(at, member)

            return come

        def arrive(at: float) -> None:
            is_ok, found = serve()
            # What was done late stays done; its caller has long given up.
            self._at(min(at + back, t + CALL_LIMIT_S + 0.1), reply(is_ok=is_ok, found=found))

        if there > CALL_LIMIT_S:
            self._at(t + there, lambda _: serve() and None)
            self._at(t + CALL_LIMIT_S, reply(is_ok=False, found=None))
        else:
            self._at(t + there, arrive)

    def _crash(self, t: float, member: Member) -> None:
        member.stop_sending(t)
        member.life += 1
        name, _, start = member.candidate.me.partition(".")
        member.candidate = Candidate(f"{name}.{int(start or 0) + 1}")
        self._turn_at(t + self.chance.uniform(0, 20), member)

    def _give_back(self, t: float, member: Member) -> None:
        member.stop_sending(t)
        if self.record == member.candidate.record:
            self.record = LeaseRecord(str(next(self._versions)), "")
        self._crash(t, member)


@QUICK
@given(
    seed=st.integers(0, 2**32),
    rates=st.lists(st.floats(0.8, 1.3), min_size=2, max_size=3),
)
def test_no_two_may_send_at_once_and_one_does_when_faults_stop(
    seed: int, rates: list[float]
) -> None:
    election = Election(random.Random(seed), rates)  # noqa: S311 - a reproducible simulation
    election.run(FAULTY_S)
    assert list(election.overlaps()) == []

    election.is_faulty = False
    election.run(FAULTY_S + QUIET_S)

    assert list(election.overlaps()) == []
    assert len(election.leaders(FAULTY_S + QUIET_S)) == 1


def test_clocks_that_differ_by_more_than_five_thirds_are_left_to_the_epoch() -> None:
    """The promise ends where it is said to end: the simulation can see it broken."""
    found: list[object] = []
    for seed in range(40):
        election = Election(random.Random(seed), [0.5, 1.0])  # noqa: S311 - the same
        election.run(FAULTY_S)
        found += election.overlaps()

    assert found
