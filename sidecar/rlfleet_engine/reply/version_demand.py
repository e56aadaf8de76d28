"""The version that a request's headers require, and whether the engine's version meets it.

A minimum needs an order of versions, which rlfleet_contract/version_order.py reads from names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rlfleet_contract import paths, version_order

_EXACT = paths.EXACT_VERSION_HEADER.encode()
_MINIMUM = paths.MIN_VERSION_HEADER.encode()
_END = paths.END_VERSION_HEADER.encode()
_ASKED = frozenset({_EXACT, _MINIMUM, _END})
_IN_AN_EVENT = "event"
_VERSION = re.compile(paths.VERSION_PATTERN)


class DemandVerdict(Enum):
    """Whether a version meets a demand."""

    MET = "met"
    UNMET = "unmet"
    NO_ORDER = "no order"


class DemandError(ValueError):
    """A header has an invalid value."""

    def __init__(self, header: bytes, expected: str, values: Iterable[str]) -> None:
        self.header = header.decode()
        super().__init__(f"{self.header} is {', '.join(values)!r:.100}, expected {expected}")


@dataclass(frozen=True, slots=True)
class VersionDemand:
    """The required versions of a request; met if both are."""

    exact: str | None = None
    minimum: str | None = None
    wants_end: bool = False
    """Whether a stream must report its last version in an event."""

    def verdict(self, version: str) -> DemandVerdict:
        """Return whether this version meets the demand; an empty version never does."""
        if self.exact not in {None, version}:
            return DemandVerdict.UNMET
        if self.minimum in {None, paths.BASE_VERSION}:
            return DemandVerdict.MET
        return _not_before(version, self.minimum or "") if version else DemandVerdict.UNMET


def _not_before(version: str, minimum: str) -> DemandVerdict:
    is_before = version_order.is_before(version, minimum)
    if is_before is None:
        return DemandVerdict.NO_ORDER
    return DemandVerdict.UNMET if is_before else DemandVerdict.MET


def demand_of(headers: Iterable[tuple[bytes, bytes]]) -> VersionDemand | None:
    """Return the demand in a request's headers; None without one. Raises DemandError."""
    found = [one for one in headers if one[0] in _ASKED]
    if not found:
        return None
    return VersionDemand(_only(found, _EXACT), _only(found, _MINIMUM), _has_event(found))


def _only(found: Iterable[tuple[bytes, bytes]], header: bytes) -> str | None:
    values = _values(found, header)
    if not values:
        return None
    if len(values) > 1 or _VERSION.fullmatch(values[0]) is None:
        raise DemandError(header, "one version, such as step-120", values)
    return values[0]


def _has_event(found: Iterable[tuple[bytes, bytes]]) -> bool:
    values = _values(found, _END)
    if values and set(values) != {_IN_AN_EVENT}:
        raise DemandError(_END, f"{_IN_AN_EVENT} in a request", values)
    return bool(values)


def _values(found: Iterable[tuple[bytes, bytes]], header: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in found if name == header]
