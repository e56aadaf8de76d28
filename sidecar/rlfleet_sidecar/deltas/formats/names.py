"""Names of published deltas. Pure.

slime and miles name versions ``weight_v000007``, SkyRL ``delta-00000007``.
"""

from dataclasses import dataclass

_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Series:
    """How the publishers of one format name versions, and the file that completes one."""

    prefix: str
    digits: int
    commit: str
    """The name of the file that is written last."""
    payloads: str
    """What the names of its other files begin with."""

    def name(self, number: int) -> str:
        """Return the name of a version."""
        return f"{self.prefix}{number:0{self.digits}d}"

    def number(self, version: str) -> int | None:
        """Return the number of a version; None if it is not one of this series."""
        tail = version.removeprefix(self.prefix)
        if not (tail.isascii() and tail.isdigit() and len(tail) <= _MAX_DIGITS):
            return None
        return int(tail) if self.name(int(tail)) == version else None


WEIGHTS = Series("weight_v", 6, "model.safetensors.index.json", "model-")
SKYRL = Series("delta-", 8, "manifest.json", "delta-rank")


def series_of(version: str) -> tuple[Series, int] | None:
    """Return the series and the number of a version; None if it is not numbered so."""
    for series in (WEIGHTS, SKYRL):
        number = series.number(version)
        if number is not None:
            return series, number
    return None
