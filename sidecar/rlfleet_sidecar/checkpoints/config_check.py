"""Does a version's config.json agree with the boot model's? Decided by config_rules.py.

Both are parsed by transformers where it is at hand, because only it knows what a key that is
left out means. Most versions of a run bring the same file, so the last answer is kept.
"""

import json
import time

from rlfleet_sidecar.checkpoints import config_parser, config_rules
from rlfleet_sidecar.checkpoints.config_rules import Config


class Agreement:
    """Compares configs, and remembers the last comparison. Blocking: use a thread."""

    def __init__(self) -> None:
        self._last: tuple[str, str | None] | None = None

    def objection(self, model: Config, found: Config, deadline: float) -> str | None:
        """Tell why a version's config does not go with the boot model's; None if it does."""
        told = config_rules.code_objection(model, found)
        if told is not None or not model or not found or config_rules.are_one(model, found):
            return told
        asked = json.dumps([model, found], sort_keys=True)
        if self._last is None or self._last[0] != asked:
            self._last = asked, _compared(model, found, deadline)
        return self._last[1]


def _compared(model: Config, found: Config, deadline: float) -> str | None:
    parsed = config_parser.parsed([model, found], deadline - time.monotonic())
    if parsed is None:
        return config_rules.differences(model, found)
    return config_rules.differences(*parsed, parsed=True)
