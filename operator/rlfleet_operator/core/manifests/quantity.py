"""Kubernetes' quantities (apimachinery's resource.Quantity) as numbers."""

import math
import re
from decimal import Decimal, InvalidOperation

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_PARTS = re.compile(r"(\+?[0-9.]+(?:[eE][-+]?[0-9]+)?)([A-Za-z]*)")
_DIGITS = 18
"""A number of more decimal digits is none that Kubernetes counts, and may be too long to write."""


def in_bytes(quantity: int | str) -> int:
    """Return a quantity as a whole number, rounded up as Kubernetes does; ValueError if it is none.

    A number below 0 is none here: nothing that rlfleet sizes can be smaller than nothing.
    """
    found = _PARTS.fullmatch(str(quantity))
    if found is None or found[2] not in _DECIMAL | _BINARY:
        raise ValueError(f"{quantity!r} is no quantity")
    try:
        number = Decimal(found[1])
    except InvalidOperation as error:
        raise ValueError(f"{quantity!r} is no quantity") from error
    if abs(number.adjusted()) > _DIGITS:
        raise ValueError(f"{quantity!r} is no quantity: too large or too small")
    is_binary = found[2] in _BINARY
    unit = Decimal(2) ** _BINARY[found[2]] if is_binary else Decimal(10) ** _DECIMAL[found[2]]
    return math.ceil(number * unit)
