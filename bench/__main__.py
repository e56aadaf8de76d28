"""Benchmarks: python -m bench [part ...] [--quick].

Each part measures one thing, cleans up after itself, and puts its figures into
bench/results/latest.json in the place of its older ones.
"""

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import findings, machine, plots, scale
from dev import steps
from dev.steps import say

RESULTS = Path(__file__).resolve().parent / "results"


def main() -> None:
    """Measure the parts that are asked for; all without any."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help="of " + ", ".join(_parts(quick=False))
    )
    parser.add_argument("--quick", action="store_true", help="few samples: to see that it runs")
    options = parser.parse_args()
    parts = _parts(quick=options.quick)
    unknown = set(options.parts) - parts.keys()
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    for name in options.parts or parts:
        say(f"=== {name}")
        begun, at = time.monotonic(), datetime.now(UTC)
        _record(name, parts[name](), at, time.monotonic() - begun)


def _parts(*, quick: bool) -> dict[str, Callable[[], findings.Part]]:
    sizes, repeats = ((8,), 1) if quick else ((16, 64, 256), 3)
    return {"scale": lambda: scale.measure(sizes, repeats)}


def _record(name: str, part: findings.Part, at: datetime, seconds: float) -> None:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / "latest.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    about = {
        "date": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": machine.commit(),
        "seconds": round(seconds, 1),
        "machine": machine.description(),
    }
    latest = findings.merged(before, name, part, about)
    file.write_text(json.dumps(latest, indent=1) + "\n")
    (RESULTS / "latest.md").write_text(findings.table(latest))
    plots.draw(latest, RESULTS)
    say(f"{name}: {json.dumps(part.figures)}\n  -> {file}")


if __name__ == "__main__":
    steps.main(main)
