"""The strategies on real vLLM: each worker's pause window, and the fleet's tokens per second.

For comparison it measures a pod restart by a Deployment, with the same image and flags but
without gate, extension and sidecar.
"""

import json
import time
from statistics import median
from typing import Any

from bench import baseline, cluster
from bench.findings import Part, paragraphs, rounded, summary
from bench.fleet import Fleet
from bench.load import Load, row, under_load
from dev.shell import Shell
from dev.steps import say
from rlfleet_contract.worker.report import Timings

STRATEGIES = ("Rolling", "Barrier", "Canary")
RESTART = "PodRestart"
_NOTES = """
Two workers, real vLLM on CPU, tiny model, pauseMode Keep, maxUnavailable 1 (Barrier pauses
both); Canary changes one worker first and promotes at once.

pause_window_by_strategy_ratio: a worker's pause window (gate closed to gate open) over the
engine's bare reload in the same change, no requests in flight; median over workers and
changes. With the tiny model the reload is a few milliseconds of file reading, so that the
ratio shows what pausing, proving and waiting for the others cost: look at the milliseconds.

rollout_throughput_ratio: six closed-loop clients through the fleet's Service, 24 tokens a
request, streamed; tokens per second from the patch until the last gate was open (until
kubectl rollout status was content), over those of the 8 s before; medians. A short rollout
and a long one can have the same ratio: "seconds lost" is how many seconds' worth of tokens
each cost.

PodRestart: a Deployment of 2 whose template names the other version; Kubernetes' default
strategy starts one new pod more at a time, on the same two cores.
"""


def measure(*, changes: int, loaded: int, as_it_is: bool) -> Part:
    """Measure each strategy without requests, then under load, then the restart."""
    windows: dict[str, list[Timings]] = {}
    loads: dict[str, list[Load]] = {}
    with cluster.ready(as_it_is=as_it_is) as shell:
        cluster.write_checkpoints(shell, cluster.TINY)
        fleet = Fleet(shell, cluster.TINY)
        fleet.resize(2)
        fleet.change()
        for strategy in STRATEGIES:
            fleet.follow(strategy)
            measured = [fleet.change() for _ in range(changes)]
            windows[strategy] = [c.timings for m in measured for c in m.changes]
            loads[strategy] = [_loaded(shell, fleet) for _ in range(loaded)]
            say(f"{strategy}: {[round(one.ratio, 2) for one in loads[strategy]]}")
        fleet.delete()
        loads[RESTART] = [_restart(shell)]
    return _part(windows, loads)


def _loaded(shell: Shell, fleet: Fleet) -> Load:
    def roll() -> tuple[float, float]:
        done = fleet.change()
        return done.begun, done.begun + done.proved_s

    return under_load(shell, fleet.model.name, fleet.model.name, roll)


def _restart(shell: Shell) -> Load:
    model = cluster.TINY
    cluster.run_script(shell, "bootable.py", "/data", model.name, *model.versions)
    baseline.apply(shell, model, model.versions[0])
    shell.kubectl("apply", "-f", "-", stdin=json.dumps(baseline.service()))
    baseline.complete(shell)

    def roll() -> tuple[float, float]:
        baseline.apply(shell, model, model.versions[1])
        begun = time.time()
        baseline.complete(shell)
        return begun, time.time()

    return under_load(shell, baseline.NAME, model.name, roll)


def _part(windows: dict[str, list[Timings]], loads: dict[str, list[Load]]) -> Part:
    return Part(
        figures={
            "pause_window_by_strategy_ratio": {
                name: rounded(median(t.window_s / t.reload_s for t in timings))
                for name, timings in windows.items()
            },
            "rollout_throughput_ratio": {
                name: rounded(median(load.ratio for load in found)) for name, found in loads.items()
            },
        },
        detail={
            "tables": {
                "Pause windows, milliseconds": [_window(n, ts) for n, ts in windows.items()],
                "Tokens through a rollout": [
                    row("strategy", n, found) for n, found in loads.items()
                ],
            },
            "changes": {name: [t.model_dump() for t in ts] for name, ts in windows.items()},
            "tokens_per_s": {name: found[0].line() for name, found in loads.items()},
        },
        notes=paragraphs(_NOTES),
    )


def _window(name: str, timings: list[Timings]) -> dict[str, Any]:
    windows = summary(t.window_s * 1000 for t in timings)
    return {
        "strategy": name,
        "window": f"{windows['median']:g} ({windows['min']:g} to {windows['max']:g})",
        "bare reload": rounded(median(t.reload_s for t in timings) * 1000),
        "samples": len(timings),
    }
