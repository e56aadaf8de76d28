"""A server that replies one after another, and its clock."""

from collections.abc import Iterator

from rlfleet.fleet.flows import Call, CallOutcome, Delay, Flow, Found
from rlfleet.fleet.runner import run


class Server:
    """Replies one after another; each call and rest takes its time on the clock."""

    def __init__(self, *outcomes: CallOutcome, call_s: float = 1.0) -> None:
        self._outcomes: Iterator[CallOutcome] = iter(outcomes)
        self._last = outcomes[-1]
        self._call_s = call_s
        self.calls: list[Call] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def run(self, flow: Flow[Found]) -> Found:
        return run(flow, self._take)

    def _take(self, step: Call | Delay) -> CallOutcome:
        if isinstance(step, Delay):
            self.now += step.seconds
            return None
        self.calls.append(step)
        self.now += self._call_s
        return next(self._outcomes, self._last)
