"""What a request asks for of versions, and whether one that an engine holds will do.

A minimum needs an order of versions. The extension knows names alone, so it is the number
at their end that counts, among names that are alike before it; the base model comes before
all others. Where that gives no order, none is made up.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rlfleet_contract import api

_EXACT = api.EXACT_VERSION_HEADER.encode()
_MINIMUM = api.MIN_VERSION_HEADER.encode()
_END = api.END_VERSION_HEADER.encode()
_ASKED = frozenset({_EXACT, _MINIMUM, _END})
_IN_AN_EVENT = "event"
_VERSION = re.compile(api.VERSION_PATTERN)
_NUMBERED = re.compile(r"(.*?)([0-9]+)")


class Verdict(Enum):
    """Whether a version is what a request asks for."""

    MET = "met"
    UNMET = "unmet"
    NO_ORDER = "no order"


class DemandError(ValueError):
    """A header that does not say what it is there for."""

    def __init__(self, header: bytes, rule: str, values: Iterable[str]) -> None:
        self.header = header.decode()
        super().__init__(f"{self.header} must {rule}, and is {', '.join(values)!r:.100}")


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request asks for; met when both versions are."""

    exact: str | None = None
    minimum: str | None = None
    is_end_told: bool = False
    """Whether a stream shall tell, in an event of its own, what it ended with."""

    def verdict(self, version: str) -> Verdict:
        """Tell whether this version will do; one that nobody has named never does."""
        if self.exact not in {None, version}:
            return Verdict.UNMET
        if self.minimum in {None, version, api.BASE_VERSION}:
            return Verdict.MET
        if version in {"", api.BASE_VERSION}:
            return Verdict.UNMET
        return _not_before(version, self.minimum or "")


def _not_before(version: str, minimum: str) -> Verdict:
    one, other = _NUMBERED.fullmatch(version), _NUMBERED.fullmatch(minimum)
    if one is None or other is None or one[1] != other[1]:
        return Verdict.NO_ORDER
    return Verdict.MET if int(one[2]) >= int(other[2]) else Verdict.UNMET


def demand_of(headers: Iterable[tuple[bytes, bytes]]) -> Demand | None:
    """Read the request's headers; None if it takes any version. Raises DemandError."""
    told = [one for one in headers if one[0] in _ASKED]
    if not told:
        return None
    return Demand(_only(told, _EXACT), _only(told, _MINIMUM), _has_event(told))


def _only(told: Iterable[tuple[bytes, bytes]], header: bytes) -> str | None:
    values = _values(told, header)
    if not values:
        return None
    if len(values) > 1 or _VERSION.fullmatch(values[0]) is None:
        raise DemandError(header, "name one version, such as step-120", values)
    return values[0]


def _has_event(told: Iterable[tuple[bytes, bytes]]) -> bool:
    values = _values(told, _END)
    if values and set(values) != {_IN_AN_EVENT}:
        raise DemandError(_END, f"be {_IN_AN_EVENT} on a request", values)
    return bool(values)


def _values(told: Iterable[tuple[bytes, bytes]], header: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in told if name == header]
