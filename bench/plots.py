"""Draws one picture per part of latest.json into the same folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt


def draw(latest: Mapping[str, Any], folder: Path) -> None:
    """Draw every part that is there."""
    figures, parts = latest["figures"], latest["parts"]
    if "control_time_s" in figures:
        _scale(figures, folder / "scale.png")
    if "window" in parts:
        _window(parts["window"]["detail"]["phases_ms"], folder / "window.png")
    if "stores" in parts:
        _stores(parts["stores"]["detail"], folder / "stores.png")
    if "copying" in parts:
        _copying(parts["copying"]["detail"]["seconds"], folder / "copying.png")
    _draw_fleets(latest, folder)


def _draw_fleets(latest: Mapping[str, Any], folder: Path) -> None:
    figures, parts = latest["figures"], latest["parts"]
    if "strategies" in parts:
        _throughput(parts["strategies"]["detail"], folder / "throughput.png")
    if "deltas" in parts:
        _deltas(parts["deltas"]["detail"]["gib_per_cpu_s"], folder / "deltas.png")
    if "fanout" in parts:
        _fanout(parts, folder / "fanout.png")
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


def _stores(detail: Mapping[str, Any], path: Path) -> None:
    """Two bars: seconds of a prepare and of a plain download, from the fastest to the slowest."""
    picture, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
    for way, took in detail["seconds"].items():
        axes.barh([way], [took["median"]], color="tab:blue", alpha=0.7)
        axes.plot([took["min"], took["max"]], [way, way], color="black", marker="|")
    axes.set_title(f"{detail['mib']:g} MiB from an S3 server on this machine")
    axes.set_xlabel("seconds, median, fastest and slowest")
    axes.set_xlim(left=0)
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
            if step not in {"window", "until replies are sent"}:
                axes.barh([model], [value], left=left, label=f"{step} {value:g} ms")
                left += value
        axes.set_title(f"{model}: pause window {steps['window']:g} ms", loc="left", fontsize=10)
        axes.set_yticks([])
        axes.legend(ncols=6, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _deltas(speeds: Mapping[str, float], path: Path) -> None:
    """One bar per form of a delta, beside the copies."""
    picture, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    names = list(reversed(list(speeds)))
    bars = axes.barh(names, [speeds[name] for name in names])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.axvline(0.5, color="grey", linestyle="--", label="limit: 0.5 GiB/s")
    axes.set_xscale("log")
    axes.set_title("A version made of a delta of 2 %, with its checksums, on one core")
    axes.set_xlabel("GiB of the version per CPU second")
    axes.legend(loc="lower right")
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _fanout(parts: Mapping[str, Any], path: Path) -> None:
    """Draw when workers have everything, and the simulation beside real sidecars."""
    picture, (times, errors) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for kind, line in parts["fanout"]["detail"]["ended_over_one_link"].items():
        times.plot(line, range(101), label=kind)
    times.axvline(1.0, color="grey", linestyle=":")
    times.set_title("1,000 workers, simulated", fontsize=10)
    times.set_xlabel("times of one link")
    times.set_ylabel("% of workers without a fault")
    times.set_xlim(left=0.9)
    runs = parts.get("fanout-calibration", {"detail": {"real_s": {}}})["detail"]
    for name, real in runs["real_s"].items():
        errors.plot(real, runs["simulated_s"][name], "o", markersize=3, label=name)
    last = max((max(real) for real in runs["real_s"].values()), default=1.0)
    errors.plot([0, last], [0, last], color="grey", linestyle=":")
    errors.set_title("16 real sidecars with slow links", fontsize=10)
    errors.set_xlabel("a worker has everything, s")
    errors.set_ylabel("simulated, s")
    for axes in (times, errors):
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    picture.savefig(path, dpi=120)
    plt.close(picture)


def _copying(seconds: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Draw prepare and plain copy beside one another, on a free machine and on a busy one."""
    picture, columns = plt.subplots(1, len(seconds), figsize=(9, 3.2), layout="constrained")
    for axes, (machine, ways) in zip(columns, seconds.items(), strict=True):
        for way, value in ways.items():
            axes.bar([way], [value])
        axes.set_title(f"About 1 GiB, {machine} machine", fontsize=10)
        axes.set_ylabel("seconds")
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
