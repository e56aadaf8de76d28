"""Barrier's pause window over Rolling's, for two workers of a model of about 1 GiB.

Barrier's workers wait for one another twice, and prove before the gates open; Rolling's do not.
With the tiny model those waits are most of a window (strategies.py), with a real one its reload is.
"""

from statistics import median
from typing import Any

from bench import cluster, cores
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import Fleet
from dev.steps import say
from rlfleet_contract.worker.report import Timings

ROLLING, BARRIER = "Rolling", "Barrier"
_WORKERS = 2
_NOTES = """
Two workers, real vLLM on CPU, about 1 GiB of weights each, pauseMode Keep, no requests in flight;
a change by Rolling and one by Barrier, by turns. Each engine's worker is bound to a core of its
own, as far as there are as many; its other processes, sidecars, operator and Kubernetes share the
same cores.

barrier_over_rolling: a worker's pause window (gate closed to gate open) with Barrier, over that
with Rolling; medians over workers and changes. barrier_replies_over_rolling: the same until replies
are sent. Rolling opens its gate before the proof and withholds replies until that; Barrier opens
its gates once all workers have proved. Barrier loads both workers at once, so that they share the
machine's memory bandwidth too.
"""


def measure(*, changes: int, as_it_is: bool) -> Part:
    """Measure so many changes by each strategy."""
    found: dict[str, list[Timings]] = {ROLLING: [], BARRIER: []}
    with cluster.ready(as_it_is=as_it_is) as shell:
        cluster.write_checkpoints(shell, cluster.LARGE)
        fleet = Fleet(shell, cluster.LARGE)
        fleet.resize(_WORKERS)
        cores.spread(_WORKERS)
        bound = cores.engines()
        for _ in cluster.LARGE.versions:
            # The first of each has costs that no later one has, and stages the files.
            fleet.change()
        for _ in range(changes):
            for strategy, timings in found.items():
                fleet.follow(strategy)
                timings += [one.timings for one in fleet.change().changes]
        fleet.delete()
    for strategy, timings in found.items():
        say(f"{strategy}: windows {[round(t.window_s, 3) for t in timings]} s")
    return _part(found, bound)


def _part(found: dict[str, list[Timings]], bound: dict[str, list[str]]) -> Part:
    middles = {name: median(t.window_s for t in timings) for name, timings in found.items()}
    replies = {name: median(map(_replies_s, timings)) for name, timings in found.items()}
    return Part(
        figures={
            "barrier_over_rolling": rounded(middles[BARRIER] / middles[ROLLING]),
            "barrier_replies_over_rolling": rounded(replies[BARRIER] / replies[ROLLING]),
        },
        detail={
            "tables": {
                "Pause windows, about 1 GiB, milliseconds": [
                    window_row(name, timings) for name, timings in found.items()
                ]
            },
            "changes": {name: [t.model_dump() for t in ts] for name, ts in found.items()},
            "engine_cores": bound,
        },
        notes=paragraphs(_NOTES),
    )


def _replies_s(timings: Timings) -> float:
    return timings.window_s + timings.withheld_s


def window_row(strategy: str, timings: list[Timings]) -> dict[str, Any]:
    """Return a table's row about the windows by one strategy."""
    windows = summary(t.window_s * 1000 for t in timings)
    return {
        "strategy": strategy,
        "window": f"{windows['median']:g} ({windows['min']:g} to {windows['max']:g})",
        "reload": rounded(median(t.reload_s for t in timings) * 1000),
        "until replies are sent": rounded(median(map(_replies_s, timings)) * 1000),
        "samples": len(timings),
    }
