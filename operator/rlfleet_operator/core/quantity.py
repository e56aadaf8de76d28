"""Kubernetes' quantities (apimachinery's resource.Quantity) as numbers."""

import math
import re
from decimal import Decimal

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_PARTS = re.compile(r"(\+?[0-9.]+(?:[eE][-+]?[0-9]+)?)([A-Za-z]*)")


def in_bytes(quantity: int | str) -> int:
    """Return a quantity as a whole number, rounded up as Kubernetes does."""
    found = _PARTS.fullmatch(str(quantity))
    if found is None or found[2] not in _DECIMAL | _BINARY:
        raise ValueError(f"{quantity!r} is no quantity")
    is_binary = found[2] in _BINARY
    unit = Decimal(2) ** _BINARY[found[2]] if is_binary else Decimal(10) ** _DECIMAL[found[2]]
    return math.ceil(Decimal(found[1]) * unit)
