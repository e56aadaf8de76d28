"""What a request asks for of versions, and whether one that an engine holds will do.

A minimum needs an order of versions: rlfleet_contract/version_order.py reads it from names.
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

    def verdict(self, version: str) -> DemandVerdict:
        """Tell whether this version will do; one that nobody has named never does."""
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
