"""From kubectl patch until every real worker proved the version: 1, 2 and 4 workers."""

from collections.abc import Sequence
from typing import Any

from bench import cluster
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import Fleet, Measured
from dev.steps import say

_NOTES = """
patch_to_proved_s: from kubectl patch's return until the last worker's own report says that
its gate opened over the proved version. Real vLLM on CPU, tiny model, maxUnavailable 1, so
workers change one after the other; medians. The fleet is at rest for 3 s before each patch.

patch_to_proved_overhead_s is that minus the sum of all workers' pause windows (timings.window_s,
reloads included), which follow one another. What is left is the control: seeing the patch,
recording the rollout, checking the checkpoint on every worker, and the time between one
worker's answer and the next one's command.
"""


def measure(*, sizes: Sequence[int], repeats: int, as_it_is: bool) -> Part:
    """Measure fleets of these sizes: one fleet that grows."""
    found: dict[int, list[Measured]] = {}
    with cluster.ready(as_it_is=as_it_is) as shell:
        cluster.write_checkpoints(shell, cluster.TINY)
        fleet = Fleet(shell, cluster.TINY)
        for size in sizes:
            fleet.resize(size)
            fleet.change()
            found[size] = [fleet.change() for _ in range(repeats)]
            say(f"{size} workers: {[round(m.proved_s, 2) for m in found[size]]} s")
    return Part(
        figures={
            "patch_to_proved_s": {str(s): _median(_raw(ms)) for s, ms in found.items()},
            "patch_to_proved_overhead_s": {str(s): _median(_over(ms)) for s, ms in found.items()},
        },
        detail={
            "tables": {"Patch to proved": [_row(size, ms) for size, ms in found.items()]},
            "changes": [
                {
                    "workers": size,
                    "proved_s": m.proved_s,
                    "finished_s": sorted(c.finished_at - m.begun for c in m.changes),
                    "timings": [c.timings.model_dump() for c in m.changes],
                }
                for size, ms in found.items()
                for m in ms
            ],
        },
        notes=paragraphs(_NOTES),
    )


def _raw(found: list[Measured]) -> list[float]:
    return [m.proved_s for m in found]


def _over(found: list[Measured]) -> list[float]:
    return [m.proved_s - m.windows_s for m in found]


def _median(values: list[float]) -> float:
    return rounded(summary(values)["median"])


def _row(size: int, found: list[Measured]) -> dict[str, Any]:
    raw = summary(_raw(found))
    return {
        "workers": size,
        "patch to proved, s": f"{raw['median']:g} ({raw['min']:g} to {raw['max']:g})",
        "sum of pause windows, s": _median([m.windows_s for m in found]),
        "overhead, s": _median(_over(found)),
        "samples": len(found),
    }
