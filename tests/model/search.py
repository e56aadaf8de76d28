"""The search itself, and what it found."""

import time
from array import array
from dataclasses import dataclass, field
from itertools import pairwise

from tests.model.explore import Config, Fleet, State
from tests.model.local import ViolationError


@dataclass
class Result:
    """What a search saw."""

    config: Config
    states: int = 0
    seconds: float = 0.0
    depth: int = 0
    is_whole: bool = False
    """Whether every state within the bounds was seen."""
    violations: list[str] = field(default_factory=list)


class Search:
    """One search; ``run`` may be called once."""

    def __init__(self, config: Config, max_states: int, max_seconds: float) -> None:
        self.fleet = Fleet(config)
        self.result = Result(config)
        self._max_states, self._max_seconds = max_states, max_seconds
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._parents = array("i")
        self._sources, self._targets = array("i"), array("i")
        """Edges that need no fault."""

    def run(self) -> Result:
        """Search until all is seen, a promise is broken, or a bound is met."""
        begun = time.monotonic()
        self._add(self.fleet.start(), -1)
        done = 0
        while done < len(self._states):
            if done % 1024 == 0 and time.monotonic() - begun > self._max_seconds:
                break
            if len(self._states) >= self._max_states or self.result.violations:
                break
            self._expand(done)
            done += 1
        self.result.is_whole = done == len(self._states)
        self.result.states = len(self._states)
        self.result.depth = len(self._path(len(self._states) - 1))
        if not self.result.violations and self.result.is_whole:
            self._demand_goal()
        self.result.seconds = round(time.monotonic() - begun, 1)
        return self.result

    def _add(self, state: State, parent: int) -> int:
        found = self._numbers.get(state)
        if found is None:
            found = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._parents.append(parent)
            try:
                self.fleet.demand_promises(state)
            except ViolationError as error:
                self._violated(str(error), found)
        return found

    def _expand(self, number: int) -> None:
        try:
            for edge in self.fleet.edges(self._states[number]):
                target = self._add(edge.state, number)
                if edge.is_free:
                    self._sources.append(number)
                    self._targets.append(target)
        except ViolationError as error:
            self._violated(f"in the step after this: {error}", number)

    # --- liveness ---------------------------------------------------------------------------------

    def _demand_goal(self) -> None:
        """See that every end of a run without further faults is the goal.

        ``good`` are the states that are at the goal and cannot leave it without a fault;
        from every state one of them must be in reach.
        """
        count = len(self._states)
        before: list[list[int]] = [[] for _ in range(count)]
        for source, target in zip(self._sources, self._targets, strict=True):
            before[target].append(source)
        lost = [n for n in range(count) if not self.fleet.is_goal(self._states[n])]
        left = _closure(lost, before, count)
        good = [n for n in range(count) if not left[n]]
        reached = _closure(good, before, count)
        stuck = next((n for n in range(count) if not reached[n]), None)
        if stuck is not None:
            self._violated("from here the goal is never reached, though nothing fails", stuck)

    # --- traces -----------------------------------------------------------------------------------

    def _path(self, number: int) -> list[int]:
        path = []
        while number >= 0:
            path.append(number)
            number = self._parents[number]
        return path[::-1]

    def _violated(self, what: str, number: int) -> None:
        lines = [f"{self.fleet.config.name}: {what}"]
        path = self._path(number)
        shown = self.fleet.described(self._states[path[0]])
        lines += shown
        for before, after in pairwise(path):
            wanted = self._states[after]
            edges = self.fleet.edges(self._states[before])
            label = next(edge.what for edge in edges if edge.state == wanted)
            seen, shown = shown, self.fleet.described(wanted)
            lines += [f"- {label}", *(line for line in shown if line not in seen)]
        self.result.violations.append("\n".join(lines))


def _closure(starts: list[int], before: list[list[int]], count: int) -> bytearray:
    """Return what leads to any of the states."""
    seen = bytearray(count)
    for start in starts:
        seen[start] = 1
    stack = list(starts)
    while stack:
        for source in before[stack.pop()]:
            if not seen[source]:
                seen[source] = 1
                stack.append(source)
    return seen
