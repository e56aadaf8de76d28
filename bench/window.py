"""One worker's pause window, gate closed to gate open, against the engine's own reload.

The difference is rlfleet's cost for waiting requests: closing and opening the gate, pausing,
emptying caches, verifying. With tiny weights it is nearly the whole window; with about 1 GiB
the reload is.
"""

from statistics import median
from typing import Any

from bench import cluster
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import Fleet, middle
from dev.shell import Shell
from dev.steps import say
from rlfleet_contract.worker.report import Timings

_STEPS = ("pause", "flush", "reload", "verify", "resume")
_NOTES = """
One worker, real vLLM on CPU, no requests in flight, pauseMode Keep, kvCache Reset; changes
back and forth between two versions that the page cache holds. The first change after the
boot is left out.

The window is report.last_change.timings.window_s: from the moment before the gate is closed
until after it is open. "between the steps" is what no step accounts for: journal and calls.

The reload is the engine's: it reads the files, digests and installs every tensor.
pause_overhead_ms is window minus reload, pause_window_ratio is window over reload.

prepare, the checkpoint's check, happens before the window, while the worker serves.
"""


def measure(*, tiny: int, large: int, as_it_is: bool) -> Part:
    """Measure so many changes of each model; none of a model leaves it out."""
    found: dict[str, list[Timings]] = {}
    with cluster.ready(as_it_is=as_it_is) as shell:
        for model, changes in ((cluster.TINY, tiny), (cluster.LARGE, large)):
            if changes:
                cluster.write_checkpoints(shell, model)
                found[model.name] = _changes(shell, model, changes)
    return _part(found)


def _changes(shell: Shell, model: cluster.Model, count: int) -> list[Timings]:
    fleet = Fleet(shell, model)
    fleet.resize(1)
    timings = [fleet.change().changes[0].timings for _ in range(count + 1)]
    fleet.delete()
    say(f"{model.name}: windows {[round(t.window_s, 3) for t in timings]} s")
    return timings[1:]


def _part(found: dict[str, list[Timings]]) -> Part:
    figures: dict[str, Any] = {}
    if tiny := found.get(cluster.TINY.name):
        figures["pause_overhead_ms"] = middle([t.window_s - t.reload_s for t in tiny])
    if large := found.get(cluster.LARGE.name):
        figures["pause_window_ratio"] = rounded(median(t.window_s / t.reload_s for t in large))
    return Part(
        figures=figures,
        detail={
            "tables": {f"{name}, milliseconds": _rows(ts) for name, ts in found.items()},
            "phases_ms": {name: _medians(ts) for name, ts in found.items()},
            "changes": {name: [t.model_dump() for t in ts] for name, ts in found.items()},
        },
        notes=paragraphs(_NOTES),
    )


def _seconds(timings: list[Timings]) -> dict[str, list[float]]:
    steps = {s: [float(getattr(t, f"{s}_s")) for t in timings] for s in _STEPS}
    windows = [t.window_s for t in timings]
    inside = [sum(values) for values in zip(*steps.values(), strict=True)]
    between = [w - i for w, i in zip(windows, inside, strict=True)]
    return {**steps, "between the steps": between, "window": windows}


def _medians(timings: list[Timings]) -> dict[str, float]:
    return {step: middle(values) for step, values in _seconds(timings).items()}


def _rows(timings: list[Timings]) -> list[dict[str, Any]]:
    found = {**_seconds(timings), "(prepare, before it)": [t.prepare_s for t in timings]}
    return [
        {"step": step, **summary(value * 1000 for value in values)}
        for step, values in found.items()
    ]
