"""How long to wait before what failed is tried again: each time twice as long. Pure."""

_DOUBLINGS = 16
"""More tell nothing apart: a float has no room for the powers of what fails for hours."""


def pause_s(failures: int, first_s: float, last_s: float) -> float:
    """Return the seconds to wait after so many failures in a row, of which there is one."""
    return min(last_s, first_s * 2.0 ** min(failures - 1, _DOUBLINGS))
