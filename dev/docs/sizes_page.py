"""docs/reference/sizes.md: what a model needs and how long changes take, by formulas. Pure.

The constants are the newest measurements in bench/results/latest.json, the models those of
examples/models. Both change this page, so that no figure of it is older than what it comes from.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "latest.json"
TEMPLATE = Path(__file__).with_suffix(".txt")
GIB = 2**30
_LARGE_GIB = 0.99
"""The larger model of the bench's part `window`."""
_VOLUME_GIB_S = 1.0
_LINK_GB_S = 20.0
"""What a GPU's PCIe 4.0 link with 16 lanes takes from memory, about."""


@dataclass(frozen=True, slots=True)
class Example:
    """A model of examples/models."""

    folder: str
    gigabytes: float
    ranks: int

    @property
    def gib(self) -> float:
        """Bytes of a version, bfloat16, in GiB."""
        return self.gigabytes * 1e9 / GIB

    @property
    def cache_gib(self) -> float:
        """The served, the previous and the next version."""
        return 3 * self.gib

    @property
    def of_a_gpu_gib(self) -> float:
        """What the weights take of each GPU."""
        return self.gib / self.ranks


EXAMPLES = (
    Example("qwen3-0.6b", 1.5, 1),
    Example("qwen3-8b", 16.4, 1),
    Example("qwen3-30b-a3b", 61.1, 2),
    Example("qwen2.5-72b-tp8", 145.4, 8),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the bench found, on a CPU."""

    tiny_window_s: float
    window_s_per_gib: float
    prepare_gib_s: float
    busy_gib_s: float
    delta_gib_s: float
    delta_share: float

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> "Measured":
        """Take the constants out of the bench's results."""
        tables = results["parts"]["window"]["detail"]["tables"]
        tiny = _median_s(tables["tiny, milliseconds"])
        large = _median_s(tables["large, milliseconds"])
        seconds = results["parts"]["copying"]["detail"]["seconds"]
        return cls(
            tiny_window_s=tiny,
            window_s_per_gib=(large - tiny) / _LARGE_GIB,
            prepare_gib_s=_LARGE_GIB / seconds["free"]["prepare"],
            busy_gib_s=_LARGE_GIB / seconds["busy"]["prepare"],
            delta_gib_s=results["figures"]["delta_apply_gib_s"],
            delta_share=results["figures"]["delta_read_ratio"],
        )

    def window_s(self, gib: float) -> float:
        """How long an engine on a CPU lets requests wait."""
        return self.tiny_window_s + gib * self.window_s_per_gib


def _median_s(table: list[dict[str, Any]]) -> float:
    (found,) = (row["median"] for row in table if row["step"] == "window")
    return float(found) / 1000


def page() -> str:
    """Return the page."""
    measured = Measured.of(json.loads(RESULTS.read_text()))
    return TEMPLATE.read_text().format(
        rows="".join(_row(one, measured) for one in EXAMPLES),
        prepare=measured.prepare_gib_s,
        busy=measured.busy_gib_s,
        delta=measured.delta_gib_s,
        share=100 * measured.delta_share,
        tiny=1000 * measured.tiny_window_s,
        per=measured.window_s_per_gib,
        link=_LINK_GB_S,
    )


def _row(one: Example, measured: Measured) -> str:
    shortest = measured.tiny_window_s + one.gigabytes / one.ranks / _LINK_GB_S
    cells = (
        one.folder,
        f"{one.gib:.1f} GiB",
        f"{one.of_a_gpu_gib:.1f} GiB",
        f"{one.cache_gib:.0f} GiB",
        f"{one.gib:.1f} GiB",
        f"{one.gib / _VOLUME_GIB_S:.0f} s",
        f"{shortest:.1f} s at least; without a GPU {measured.window_s(one.gib):.1f} s",
    )
    return f"| {' | '.join(cells)} |\n"
