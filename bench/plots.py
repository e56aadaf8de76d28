"""Draws one picture per part of latest.json into the same folder."""

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
    if "window" in latest["parts"]:
        _window(latest["parts"]["window"]["detail"]["phases_ms"], folder / "window.png")
    if "strategies" in latest["parts"]:
        _throughput(latest["parts"]["strategies"]["detail"], folder / "throughput.png")
    if "patch_to_proved_s" in figures:
        _rollout(figures, folder / "rollout.png")


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


def _window(phases: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """One bar per model: where its median pause window goes."""
    picture, rows = plt.subplots(
        len(phases), 1, figsize=(9, 1.2 + 1.3 * len(phases)), layout="constrained", squeeze=False
    )
    for (axes,), (model, steps) in zip(rows, phases.items(), strict=True):
        left = 0.0
        for step, value in steps.items():
            if step != "window":
                axes.barh([model], [value], left=left, label=f"{step} {value:g} ms")
                left += value
        axes.set_title(f"{model}: pause window {steps['window']:g} ms", loc="left", fontsize=10)
        axes.set_yticks([])
        axes.legend(ncols=6, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _rollout(figures: Mapping[str, Any], path: Path) -> None:
    """Stack windows and overhead by number of workers, next to the pod restart."""
    picture, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    total, over = figures["patch_to_proved_s"], figures["patch_to_proved_overhead_s"]
    names = [f"{size} workers" for size in total]
    windows = [total[size] - over[size] for size in total]
    axes.bar(names, windows, label="pause windows, one after the other")
    axes.bar(names, list(over.values()), bottom=windows, label="control")
    if "restart_baseline_s" in figures:
        axes.bar(["2 by restart"], [figures["restart_baseline_s"]], label="a Deployment's rollout")
        axes.set_yscale("log")
    axes.set_ylabel("seconds")
    axes.set_title("kubectl patch to every worker proved, real vLLM", fontsize=10)
    axes.legend(fontsize=8)
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _throughput(detail: Mapping[str, Any], path: Path) -> None:
    """Draw the fleet's tokens per second around a rollout; the restart has its own time."""
    lines = detail["tokens_per_s"]
    picture, rows = plt.subplots(len(lines), 1, figsize=(9, 1.9 * len(lines)), layout="constrained")
    for axes, (name, line) in zip(rows, lines.items(), strict=True):
        axes.plot([at for at, _ in line], [rate for _, rate in line], drawstyle="steps-post")
        axes.axvline(0, color="grey", linestyle=":")
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_ylabel("tokens/s")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    rows[-1].set_xlabel("seconds from the patch")
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _line(axes: Any, values: Mapping[str, float], label: str) -> None:
    axes.plot([int(size) for size in values], list(values.values()), "o-", label=label)
