"""The order of versions, read from their names alone: for the operator and the engine.

A version's number is all the digits at the end of its name, however many: 10 of step-10 and
of step-010. Two questions need an order, and differ in what they compare:

| version, other | is_before: a sampler's minimum | is_lower: staleness.minVersion |
|---|---|---|
| step-9, step-10 | True | True |
| base, step-10 | True: base is before all others | False: base has no number |
| a-9, b-10 | None: other text before the number | True: runs may have names of their own |
| final, step-10 | None: no number | False: what has no number breaks no bound |

The engine rejects a minimum that gives no order (400); an order is never made up.
"""

from rlfleet_contract import paths

_DIGITS = "0123456789"


def number_of(version: str) -> int | None:
    """Return the number at the end of a name; None if there is none."""
    digits = version.removeprefix(version.rstrip(_DIGITS))
    return int(digits) if digits else None


def is_before(version: str, other: str) -> bool | None:
    """Return whether a version is earlier by its name; None if the names have no order."""
    if other in {version, paths.BASE_VERSION}:
        return False
    if version == paths.BASE_VERSION:
        return True
    one, two = number_of(version), number_of(other)
    if one is None or two is None or version.rstrip(_DIGITS) != other.rstrip(_DIGITS):
        return None
    return one < two


def is_lower(version: str, bound: str) -> bool:
    """Return whether a version's number is lower than the bound's, with any text before it."""
    one, two = number_of(version), number_of(bound)
    return one is not None and two is not None and one < two
