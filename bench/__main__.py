"""Benchmarks: python -m bench [part ...] [--quick].

Each part measures one thing, cleans up after itself, and puts its figures into
bench/results/latest.json in the place of its older ones.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench import (
    barrier,
    baseline,
    copying,
    deltas,
    extension,
    findings,
    machine,
    plots,
    prepare,
    rollout,
    scale,
    stores,
    strategies,
    window,
)
from bench.fanout import part as fanout
from dev import steps
from dev.steps import say

SIZES = {16: 3, 64: 3, 256: 3, 1000: 1, 10000: 1}
"""Rollouts at each budget, by workers: each size is a part of its own."""
SIMULATED_FROM = 10_000
"""From so many workers on the sidecars are simulated."""
PARTS = (
    *(f"scale-{size}" for size in SIZES),
    "window",
    "copying",
    "prepare",
    "deltas",
    "stores",
    "fanout",
    "fanout-calibration",
    "strategies",
    "barrier",
    "extension",
    "rollout",
    "baseline",
)
_FEW_BLOCKS = ("--cell-s=3", "--clients", "1", "4")
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    """Measure the parts that are asked for; all without any."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)} (all)")
    parser.add_argument(
        "--quick", action="store_true", help="take few samples, only to see that it runs"
    )
    parser.add_argument(
        "--as-it-is",
        action="store_true",
        help="use the cluster as it is: build and install nothing",
    )
    options = parser.parse_args()
    parts = _parts(quick=options.quick, as_it_is=options.as_it_is)
    unknown = set(options.parts) - parts.keys()
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    for name in options.parts or parts:
        say(f"=== {name}")
        begun, at, load = time.monotonic(), datetime.now(UTC), os.getloadavg()[0]
        refaults = machine.refaults()
        part = parts[name]()
        about = {
            "date": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "load_before": round(load, 1),
            "seconds": round(time.monotonic() - begun, 1),
            "refaults": machine.refaults() - refaults,
        }
        _record(name, part, about)


def _parts(*, quick: bool, as_it_is: bool) -> dict[str, Callable[[], findings.Part]]:
    """Return what can be measured, in the order in which it is."""
    return {
        **{
            f"scale-{size}": partial(
                scale.measure, size, 1 if quick else repeats, lean=size >= SIMULATED_FROM
            )
            for size, repeats in SIZES.items()
        },
        "window": lambda: window.measure(
            tiny=2 if quick else 12, large=0 if quick else 6, as_it_is=as_it_is
        ),
        "copying": lambda: copying.measure(rounds=2 if quick else 8),
        "prepare": lambda: prepare.measure(repeats=1 if quick else 6, as_it_is=as_it_is),
        "deltas": lambda: deltas.measure(
            nbytes=(16 if quick else 128) << 20, repeats=1 if quick else 3, chain=2 if quick else 4
        ),
        "stores": lambda: stores.measure(
            nbytes=(1 << 26) if quick else (1 << 30), repeats=1 if quick else 5
        ),
        "fanout": lambda: fanout.measure(
            sizes=(16, 90) if quick else (16, 96, 1000), nbytes=10**10 if quick else 10**11
        ),
        "fanout-calibration": fanout.calibrate,
        "strategies": lambda: strategies.measure(
            changes=1 if quick else 3, loaded=1 if quick else 3, as_it_is=as_it_is
        ),
        "barrier": lambda: barrier.measure(changes=1 if quick else 4, as_it_is=as_it_is),
        "extension": lambda: extension.measure(
            flags=_FEW_BLOCKS if quick else (), as_it_is=as_it_is
        ),
        "rollout": lambda: rollout.measure(
            sizes=(1,) if quick else (1, 2, 4), repeats=1 if quick else 5, as_it_is=as_it_is
        ),
        "baseline": lambda: baseline.measure(repeats=1 if quick else 3, as_it_is=as_it_is),
    }


def _record(name: str, part: findings.Part, about: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "latest.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    about |= {"commit": machine.commit(), "machine": machine.description()}
    latest = findings.merged(before, name, part, about, PARTS)
    file.write_text(json.dumps(latest, indent=1) + "\n")
    (RESULTS / "latest.md").write_text(findings.table(latest))
    plots.draw(latest, RESULTS)
    say(f"{name}: {json.dumps(part.figures)}\n  -> {file}")


if __name__ == "__main__":
    steps.main(main)
