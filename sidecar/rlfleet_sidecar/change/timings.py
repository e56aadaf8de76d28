"""Measures the steps of one operation, in one command or in several."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rlfleet_contract.worker.commands import Command, Verb
from rlfleet_contract.worker.report import Change, Timings


class Stopwatch:
    """Sums the time of each step, until another operation begins."""

    def __init__(self) -> None:
        self._operation: str | None = None
        self._taken: dict[Verb, float] = {}

    def begin(self, operation: str) -> None:
        """Measure a command of this operation; another one's times are discarded."""
        if operation != self._operation:
            self._operation, self._taken = operation, {}

    def reset(self) -> None:
        """Begin a window: times of an earlier window of the operation do not count."""
        self._taken = {}

    @contextmanager
    def measure(self, verb: Verb) -> Iterator[None]:
        """Add the time inside to the step's."""
        begun = time.monotonic()
        before = self._taken.get(verb, 0.0)
        try:
            yield
        finally:
            self._taken[verb] = before + time.monotonic() - begun

    def change(self, command: Command, prepare_s: float, window_s: float) -> Change:
        """Return the change that has just succeeded, with its times."""
        taken = {f"{verb.lower()}_s": round(taken_s, 6) for verb, taken_s in self._taken.items()}
        return Change(
            operation=command.operation,
            version=command.version,
            finished_at=time.time(),
            timings=Timings.model_validate(
                taken | {"prepare_s": round(prepare_s, 6), "window_s": round(window_s, 6)}
            ),
        )
