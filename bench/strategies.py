"""The strategies on real vLLM: each worker's pause window, and the fleet's tokens per second.

For comparison it measures a pod restart by a Deployment, with the same image and flags but
without gate, extension and sidecar.
"""

import json
import time
from statistics import median

from bench import baseline, cluster, cores
from bench.barrier import window_row
from bench.findings import Part, paragraphs, rounded
from bench.fleet import Fleet
from bench.load import Load, pooled, row, under_load
from dev.shell import Shell
from dev.steps import say
from rlfleet_contract.worker.report import Timings

STRATEGIES = ("Rolling", "Barrier", "Canary")
RESTART = "PodRestart"
_IN_A_ROW = 6
"""Rollouts under one load: one takes less than a second, in which each client has one request."""
_NOTES = """
Two workers, real vLLM on CPU, tiny model, pauseMode Keep, maxUnavailable 1 (Barrier pauses
both); Canary changes one worker first and promotes at once.

pause_window_by_strategy_ms: a worker's pause window (gate closed to gate open), no requests in
flight; median over workers and changes. With the tiny model a reload takes a few milliseconds, so
that the window shows what pausing, proving and waiting for the others cost; with about 1 GiB: part
barrier.

Each engine's worker is bound to a core of its own, as far as there are as many: two on one core
wait for each other, since one that has just answered spins for a second.

rollout_throughput_ratio: six closed-loop clients through the fleet's Service, 24 tokens a
request, streamed; tokens per second while six rollouts follow one another, with 3 s between
them, over those of the 16 s before, of all samples together, because
tokens come in bursts. One rollout takes less than a second, in which a
client has one request: its ratio was anything from 0 to 1.3. Of PodRestart it is one rollout,
until kubectl rollout status was content. "seconds lost" is how many seconds' worth of tokens
they cost together.

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
        cores.spread(2)
        bound = cores.engines()
        fleet.change()
        for strategy in STRATEGIES:
            fleet.follow(strategy)
            measured = [fleet.change() for _ in range(changes)]
            windows[strategy] = [c.timings for m in measured for c in m.changes]
            loads[strategy] = [_loaded(shell, fleet) for _ in range(loaded)]
            say(f"{strategy}: {[round(one.ratio, 2) for one in loads[strategy]]}")
        fleet.delete()
        loads[RESTART] = [_restart(shell)]
    return _part(windows, loads, bound)


def _loaded(shell: Shell, fleet: Fleet) -> Load:
    def roll() -> tuple[float, float]:
        done = [fleet.change() for _ in range(_IN_A_ROW)]
        return done[0].begun, done[-1].begun + done[-1].proved_s

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


def _part(
    windows: dict[str, list[Timings]], loads: dict[str, list[Load]], bound: dict[str, list[str]]
) -> Part:
    middles = {
        name: median(timing.window_s for timing in timings) for name, timings in windows.items()
    }
    return Part(
        figures={
            "pause_window_by_strategy_ms": {
                name: rounded(1000 * window_s) for name, window_s in middles.items()
            },
            "rollout_throughput_ratio": {
                name: rounded(pooled(found)) for name, found in loads.items()
            },
        },
        detail={
            "tables": {
                "Pause windows, milliseconds": [window_row(n, ts) for n, ts in windows.items()],
                "Tokens through a rollout": [
                    row("strategy", n, found) for n, found in loads.items()
                ],
            },
            "changes": {name: [t.model_dump() for t in ts] for name, ts in windows.items()},
            "engine_cores": bound,
            "tokens_per_s": {name: found[0].line() for name, found in loads.items()},
        },
        notes=paragraphs(_NOTES),
    )
