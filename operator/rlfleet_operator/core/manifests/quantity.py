"""Kubernetes' quantities (apimachinery's resource.Quantity) as numbers."""

import math
import re
from decimal import Decimal, InvalidOperation

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_PARTS = re.compile(r"(\+?[0-9.]+(?:[eE][-+]?[0-9]+)?)([A-Za-z]*)")
_DIGITS = 18
"""Kubernetes counts no number of more decimal digits, and int() may be slow on it."""


def in_bytes(quantity: int | str) -> int:
    """Return a quantity as a whole number, rounded up as Kubernetes does.

    Raises ValueError for anything else, and for negative numbers, as these are sizes.
    """
    found = _PARTS.fullmatch(str(quantity))
    if found is None or found[2] not in _DECIMAL | _BINARY:
        raise ValueError(f"got {quantity!r}, expected a quantity")
    try:
        number = Decimal(found[1])
    except InvalidOperation as error:
        raise ValueError(f"got {quantity!r}, expected a quantity") from error
    if abs(number.adjusted()) > _DIGITS:
        raise ValueError(f"got {quantity!r}, expected a quantity of at most {_DIGITS} digits")
    is_binary = found[2] in _BINARY
    unit = Decimal(2) ** _BINARY[found[2]] if is_binary else Decimal(10) ** _DECIMAL[found[2]]
    return math.ceil(number * unit)
