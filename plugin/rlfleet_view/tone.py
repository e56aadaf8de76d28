"""How good a phase is: what trees and pages choose a colour by."""

from enum import StrEnum


class Tone(StrEnum):
    """How good the state of a worker or rollout is."""

    GOOD = "good"
    BUSY = "busy"
    BAD = "bad"


_PHASES = {
    "Serving": Tone.GOOD,
    "Completed": Tone.GOOD,
    "Quarantined": Tone.BAD,
    "Unreachable": Tone.BAD,
    "Failed": Tone.BAD,
    "Held": Tone.BAD,
    "RolledBack": Tone.BAD,
    "Refused": Tone.BAD,
}


def tone_of(phase: str) -> Tone:
    """Return the tone of a phase; one that is not known is busy."""
    return _PHASES.get(phase, Tone.BUSY)
