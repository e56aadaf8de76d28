"""Pictures of latest.json, one per part, beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt


def draw(latest: Mapping[str, Any], folder: Path) -> None:
    """Draw every part that is there."""
    figures = latest["figures"]
    if "control_time_s" in figures:
        _scale(figures, folder / "scale.png")


def _scale(figures: Mapping[str, Any], path: Path) -> None:
    picture, (times, cpu) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, label in (
        ("control_time_s", "maxUnavailable 25%"),
        ("control_time_all_at_once_s", "maxUnavailable 100%"),
    ):
        _line(times, figures[name], label)
    times.set_title("Patch to every worker proved, fake engines")
    times.set_ylabel("seconds")
    times.legend()
    _line(cpu, figures["operator_cpu_s"], "operator")
    cpu.set_title("Operator's CPU time of a rollout at 25%")
    cpu.set_ylabel("CPU seconds")
    for axes in (times, cpu):
        axes.set_xlabel("workers")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _line(axes: Any, values: Mapping[str, float], label: str) -> None:
    axes.plot([int(size) for size in values], list(values.values()), "o-", label=label)
