"""The parts of the benchmark: simulated fleets, and the simulation beside real sidecars."""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any

from bench.fanout import calibration
from bench.fanout.fleet import Faults, Outcome, Scenario, drawn, run
from bench.findings import Part, paragraphs, rounded
from dev.steps import say

_MOST = {"no fault": 1.3, "faults": 2.0}
_FAULTS = {"dead": 0.05, "slow": 0.05, "lying": 0.01}
_NOTES = """
No cluster and no network: a simulation. Who receives from whom is decided by the operator's
supplies() and the sidecar's PieceRoute, Feed, Offering, Turns, in simulated time; hashes are
compared by the sidecar's code. Written again are only threads, requests and transfers: a flow
has its fair share of its sender's and its receiver's link, a request takes 2 ms, hash and write of
a piece take 10 ms, each up to half as much more or less.

100 GB in pieces of 16 MiB, 25 Gbit/s in each direction for each node, 100 Gbit/s for the store;
prepares arrive within half a second. The processors are taken to keep up with the links. The
operator does not help: nobody gets another supply.

faults: 5 % of the workers are gone at a random moment of the time of one link, without an end of
their connections; 5 % have a link ten times slower; 1 % send wrong bytes to each that asks. "faults
at the start": those 5 % never answer. The ratio is that of the last worker without a fault, over
bytes / rate of one link. Slow workers are compared with their own links. Wrong pieces are those
that a worker kept.
"""
_CALIBRATION_NOTES = """
16 sidecars, as processes in network namespaces, with links of 50 Mbit/s in each direction (tbf) and
an unlimited store; 64 MiB in pieces of 1 MiB, so that two cores keep up. Compared are the times
from the prepare to "Version received" of each worker without a fault. Those that did not have it
after 60 s count as 60 s.

The simulation has the same faults, and links of the rate at which the run's reader read the
store: on a busy machine all links are slower than asked for. A request takes 10 ms and what a full
queue takes, hash and write of a piece 30 ms; median of five seeds.
"""


def measure(*, sizes: tuple[int, ...], nbytes: int) -> Part:
    """Simulate fleets of these sizes, without a fault and with many."""
    scenarios = [(size, kind) for size in sizes for kind in ("no fault", "faults")]
    scenarios += [(max(sizes), "faults at the start")]
    with ProcessPoolExecutor() as pool:
        # The longest first.
        pending = {
            one: pool.submit(run, _scenario(*one, nbytes))
            for one in sorted(scenarios, reverse=True)
        }
        found = {one: _told(one, pending[one].result()) for one in pending}
    largest = {kind: outcome for (size, kind), outcome in found.items() if size == max(sizes)}
    return Part(
        figures={
            "fanout_over_one_link": {k: rounded(one.ratio) for k, one in sorted(largest.items())},
            "fanout_copies": {k: rounded(one.copies) for k, one in sorted(largest.items())},
            "fanout_wrong_pieces": sum(one.wrong for one in found.values()),
        },
        detail={
            "tables": {"Simulated fleets": [_row(*one, found[one]) for one in sorted(found)]},
            "ended_over_one_link": {kind: _quantiles(one) for kind, one in largest.items()},
            "limits": _MOST,
        },
        notes=paragraphs(_NOTES),
    )


def _scenario(size: int, kind: str, nbytes: int) -> Scenario:
    plain = Scenario(workers=size, nbytes=nbytes)
    is_at_once = kind == "faults at the start"
    faults = Faults() if kind == "no fault" else drawn(plain, at_once=is_at_once, **_FAULTS)
    return replace(plain, faults=faults)


def _told(one: tuple[int, str], outcome: Outcome) -> Outcome:
    say(f"{one[0]} workers, {one[1]}: {outcome.ratio:.3f}, {outcome.copies:.2f} copies")
    return outcome


def _row(size: int, kind: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "workers": size,
        "faults": kind,
        "last / one link": rounded(outcome.ratio),
        "half of them / one link": _quantiles(outcome)[50],
        "lying ones": rounded(outcome.lying_ratio) or "",
        "slow ones / their link": rounded(outcome.slow_ratio) or "",
        "copies out of the store": rounded(outcome.copies),
        "wrong pieces": outcome.wrong,
    }


def _quantiles(outcome: Outcome) -> list[float]:
    """Return when each percent of the workers without a fault had everything."""
    faulty, ideal_s = outcome.scenario.faults.faulty, outcome.scenario.ideal_s
    ended = sorted(at / ideal_s for n, at in outcome.ended_s.items() if n not in faulty)
    return [rounded(ended[percent * (len(ended) - 1) // 100]) for percent in range(101)]


def calibrate() -> Part:
    """Compare the simulation with real sidecars."""
    found = calibration.calibrated()
    errors = [error for one in found for error in one.errors]
    return Part(
        figures={
            "fanout_simulation_error": {
                "median": rounded(median(errors)),
                "of a run's last worker": rounded(max(map(_error_of_last, found))),
                "worst": rounded(max(errors)),
            }
        },
        detail={
            "tables": {"Runs": [_compared_row(one) for one in found]},
            "real_s": {one.name: [*map(rounded, one.real_s)] for one in found},
            "simulated_s": {one.name: [*map(rounded, one.simulated_s)] for one in found},
        },
        notes=paragraphs(_CALIBRATION_NOTES),
    )


def _error_of_last(one: calibration.Compared) -> float:
    return abs(max(one.simulated_s) / max(one.real_s) - 1)


def _compared_row(one: calibration.Compared) -> Mapping[str, Any]:
    return {
        "run": one.name,
        "last worker, s": rounded(max(one.real_s)),
        "simulated": rounded(max(one.simulated_s)),
        "error, median": rounded(median(one.errors)),
        "error, worst": rounded(max(one.errors)),
        "copies": rounded(one.real_copies),
        "copies, simulated": rounded(one.simulated_copies),
    }
