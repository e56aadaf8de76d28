"""Does a version's config.json match the base model's? Decided by config_rules.py.

transformers parses both if it is installed, because only it knows the defaults of absent keys.
Most versions of a run have the same file, so the last answer is kept.
"""

import json
import time

from rlfleet_sidecar.checkpoints import config_parser, config_rules
from rlfleet_sidecar.checkpoints.config_rules import Config

_WAY_OUT = (
    "the engine computes with the base model's: train with it, correct this file if you did, or"
    " serve a base model that has the version's"
)


class ConfigCheck:
    """Compares configs and caches the last result. Blocking: use a thread."""

    def __init__(self) -> None:
        self._last: tuple[str, str | None] | None = None

    def objection(self, model: Config, found: Config, deadline: float) -> str | None:
        """Return why a version's config does not match the base model's, or None."""
        why = config_rules.code_objection(model, found)
        if why is not None or not model or not found or config_rules.are_one(model, found):
            return why
        asked = json.dumps([model, found], sort_keys=True)
        if self._last is None or self._last[0] != asked:
            self._last = asked, _compared(model, found, deadline)
        return self._last[1]


def _compared(model: Config, found: Config, deadline: float) -> str | None:
    parsed = config_parser.parsed([model, found], deadline - time.monotonic())
    ours, theirs = parsed or (model, found)
    why = config_rules.differences(ours, theirs, parsed=parsed is not None)
    return why and f"{why}; {_WAY_OUT}"
