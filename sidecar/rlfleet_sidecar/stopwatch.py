"""Times the steps of one operation, whether they came as one command or as many."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rlfleet_contract.models import Change, Command, Timings, Verb


class Stopwatch:
    """Adds up how long each step took, until another operation begins.

    A prepare that is repeated is timed anew: what it waited for before is not its work.
    """

    def __init__(self) -> None:
        self._operation: str | None = None
        self._taken: dict[Verb, float] = {}

    def begin(self, operation: str) -> None:
        """Time a command of this operation; what another one took is forgotten."""
        if operation != self._operation:
            self._operation, self._taken = operation, {}

    def reset(self) -> None:
        """Begin a window: what an earlier one of the same operation took does not count."""
        prepare_s = self._taken.get(Verb.PREPARE, 0.0)
        self._taken = {Verb.PREPARE: prepare_s}

    @contextmanager
    def measure(self, verb: Verb) -> Iterator[None]:
        """Add the time spent inside to the step's."""
        begun = time.monotonic()
        before = 0.0 if verb is Verb.PREPARE else self._taken.get(verb, 0.0)
        try:
            yield
        finally:
            self._taken[verb] = before + time.monotonic() - begun

    def change(self, command: Command, window_s: float) -> Change:
        """Tell the change that has just ended well, and what it took."""
        taken = {f"{verb.lower()}_s": round(taken_s, 6) for verb, taken_s in self._taken.items()}
        return Change(
            operation=command.operation,
            version=command.version,
            finished_at=time.time(),
            timings=Timings.model_validate(taken | {"window_s": round(window_s, 6)}),
        )
