"""One worker's pause window, gate closed to gate open, against vLLM's bare reload.

The difference is rlfleet's cost for waiting requests: gate, pause, caches, digests, proof. The
denominator must have nothing of rlfleet: a window must not look better because our own reload
is slower.
"""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench import cluster, cores
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import Fleet, middle
from dev import cache
from dev.shell import Shell
from dev.steps import say
from rlfleet_contract.worker.report import Timings

_BARE = (cache.REPOSITORY / "bench" / "pods" / "bare.py").read_text()
_STAGED = "/var/cache/rlfleet/versions"
_REPLIES = "until replies are sent"
_STEPS = ("pause", "flush", "reload", "verify", "resume")
_NOTES = """
One worker, real vLLM on CPU, no requests in flight, pauseMode Keep, kvCache Reset; changes
back and forth between two versions; the staged files are read right before each measurement,
because a machine may throw its page cache away (the run says how often it did). The first
change to each version is left out.

The window is report.last_change.timings.window_s: from the moment before the gate is closed
until requests pass. Their replies wait for the proof, withheld_s longer; replies_over_bare_reload
has that too. "between the steps" is what no step accounts for: journal and calls.

The bare reload is vLLM's own (reload_weights with a path, by /collective_rpc) of the same
staged files in the same engine, after the changes: vLLM maps them, and nothing of rlfleet reads,
digests or compares. window_over_bare_reload and window_minus_bare_reload_ms compare medians.

A processor with avx512_bf16 packs linear layers, in both reloads; others keep them as they are.
The probe of the proof is computed by the engine, so that a slow processor sends replies late.

The step reload is rlfleet's: the engine reads, digests and installs every tensor. Memory is read
back beside the proof's probe, until replies are sent.

prepare, the checkpoint's check, happens before the window, while the worker serves.
"""


@dataclass(frozen=True, slots=True)
class Windows:
    """What was measured of one model."""

    timings: list[Timings] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    """vLLM's own reload of the same files, as often."""
    cores: dict[str, list[str]] = field(default_factory=dict)
    """The cores that each of the engine's processes may run on."""

    @property
    def window_s(self) -> float:
        """The median window."""
        return median(timing.window_s for timing in self.timings)

    @property
    def replies_s(self) -> float:
        """The median time until replies are sent: the window, and the rest of the proof."""
        return median(timing.window_s + timing.withheld_s for timing in self.timings)

    @property
    def median_s(self) -> float:
        """The median bare reload."""
        return median(self.bare_s)


def measure(*, tiny: int, large: int, as_it_is: bool) -> Part:
    """Measure so many changes of each model; none of a model leaves it out."""
    found: dict[str, Windows] = {}
    with cluster.ready(as_it_is=as_it_is) as shell:
        for model, changes in ((cluster.TINY, tiny), (cluster.LARGE, large)):
            if changes:
                cluster.write_checkpoints(shell, model)
                found[model.name] = _changes(shell, model, changes)
    return part_of(found)


def _changes(shell: Shell, model: cluster.Model, count: int) -> Windows:
    fleet = Fleet(shell, model)
    fleet.resize(1)
    found = Windows(cores=cores.engines())
    for _ in model.versions:
        # The first of each has costs that no later one has, and stages the files.
        fleet.change()
    for _ in range(count):
        _bare(shell, model, fleet.next, "read")
        found.timings.append(fleet.change().changes[0].timings)
    # Last, because vLLM's own reload leaves hooks on a CPU's packed layers.
    for turn in range(count):
        version = model.versions[turn % len(model.versions)]
        found.bare_s.append(float(_bare(shell, model, version, "reload")))
    fleet.delete()
    say(f"{model.name}: windows {[round(t.window_s, 3) for t in found.timings]} s")
    say(f"{model.name}: bare reloads {[round(bare_s, 3) for bare_s in found.bare_s]} s")
    return found


def _bare(shell: Shell, model: cluster.Model, version: str, act: str) -> str:
    """Read the staged files, and have vLLM reload them by itself if ``act`` is reload."""
    into = ("exec", f"{model.name}-0", "-c", "sidecar", "--", "python3", "-c", _BARE)
    return shell.kubectl(*into, f"{_STAGED}/{version}", act)


def part_of(found: dict[str, Windows]) -> Part:
    """Make the figures."""
    figures: dict[str, Any] = {}
    if tiny := found.get(cluster.TINY.name):
        figures["window_minus_bare_reload_ms"] = rounded(1000 * (tiny.window_s - tiny.median_s))
    if large := found.get(cluster.LARGE.name):
        figures["window_over_bare_reload"] = rounded(large.window_s / large.median_s)
        figures["replies_over_bare_reload"] = rounded(large.replies_s / large.median_s)
    return Part(
        figures=figures,
        detail={
            "tables": {f"{name}, milliseconds": _rows(one) for name, one in found.items()},
            "phases_ms": {name: _medians(one.timings) for name, one in found.items()},
            "changes": {name: [t.model_dump() for t in one.timings] for name, one in found.items()},
            "bare_reload_s": {name: one.bare_s for name, one in found.items()},
            "engine_cores": {name: one.cores for name, one in found.items()},
        },
        notes=paragraphs(_NOTES),
    )


def _seconds(timings: list[Timings]) -> dict[str, list[float]]:
    steps = {s: [float(getattr(t, f"{s}_s")) for t in timings] for s in _STEPS}
    replies = [t.window_s + t.withheld_s for t in timings]
    inside = [sum(values) for values in zip(*steps.values(), strict=True)]
    between = [r - i for r, i in zip(replies, inside, strict=True)]
    windows = [t.window_s for t in timings]
    return {**steps, "between the steps": between, "window": windows, _REPLIES: replies}


def _medians(timings: list[Timings]) -> dict[str, float]:
    return {step: middle(values) for step, values in _seconds(timings).items()}


def _rows(windows: Windows) -> list[dict[str, Any]]:
    timings = windows.timings
    found = {
        **_seconds(timings),
        "(vLLM's bare reload)": windows.bare_s,
        "(prepare, before it)": [t.prepare_s for t in timings],
    }
    return [
        {"step": step, **summary(value * 1000 for value in values)}
        for step, values in found.items()
    ]
