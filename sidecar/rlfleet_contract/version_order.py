"""The order of versions that their names tell: one reading, for the operator and the engine.

A version's number is all the digits at the end of its name, however many. Who knows names
alone (a sampler's minimum) asks ``is_before``: it compares numbers among names that are
alike before them, the base model comes before all others, and where that gives no order,
none is made up. Who was given a bound with the fleet (staleness.minVersion) asks
``is_lower``: the number counts whatever stands before it, because a fleet's runs may have
names of their own, and what has no number is lower than nothing.
"""

import re
from typing import NamedTuple

from rlfleet_contract import paths

_NUMBERED = re.compile(r"(.*?)([0-9]+)")


class Numbered(NamedTuple):
    """A name that ends with a number."""

    text: str
    """What stands before it."""
    number: int


def numbered(version: str) -> Numbered | None:
    """Take a name apart; None if it ends with no number."""
    found = _NUMBERED.fullmatch(version)
    return None if found is None else Numbered(found[1], int(found[2]))


def number_of(version: str) -> int | None:
    """Return the number at the end of a name; None if there is none."""
    found = numbered(version)
    return None if found is None else found.number


def is_before(version: str, other: str) -> bool | None:
    """Tell whether a version is an earlier one than the other; None if they have no order."""
    if other in {version, paths.BASE_VERSION}:
        return False
    if version == paths.BASE_VERSION:
        return True
    one, two = numbered(version), numbered(other)
    if one is None or two is None or one.text != two.text:
        return None
    return one.number < two.number


def is_lower(version: str, bound: str) -> bool:
    """Tell whether a version's number is lower than the bound's, whatever stands before it."""
    one, two = number_of(version), number_of(bound)
    return one is not None and two is not None and one < two
