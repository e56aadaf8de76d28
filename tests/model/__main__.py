"""Search, and print the result: ``python -m tests.model quick|bounded|full``.

``full`` writes what it saw into bench/results/faults.json.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.model import configs
from tests.model.explore import Config
from tests.model.search import Result, Search

SETS: dict[str, Callable[[], Iterator[Config]]] = {
    "quick": configs.quick,
    "bounded": configs.bounded,
    "full": configs.full,
}
RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "faults.json"


def main() -> int:
    """Search one set; returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("which", choices=SETS)
    parser.add_argument("--states", type=int, default=200_000, help="of one search at most")
    parser.add_argument("--seconds", type=float, default=1200, help="of all searches at most")
    chosen = parser.parse_args()
    results = run(SETS[chosen.which](), chosen.states, chosen.seconds, _print)
    broken = [what for result in results for what in result.violations]
    states = sum(result.states for result in results)
    seconds = sum(result.seconds for result in results)
    sys.stdout.write(f"{states} states, {seconds:.0f} s, {len(broken)} violations\n")
    if chosen.which == "full":
        _record(results)
    return 1 if broken else 0


def run(
    searches: Iterator[Config],
    max_states: int,
    max_seconds: float,
    tell: Callable[[Result], None] = lambda _result: None,
) -> list[Result]:
    """Search all of them, as far as the time goes."""
    results: list[Result] = []
    for config in searches:
        left = max_seconds - sum(result.seconds for result in results)
        if left <= 0:
            break
        results.append(Search(config, max_states, left).run())
        tell(results[-1])
    return results


def _print(result: Result) -> None:
    whole = "" if result.is_whole else " (not all)"
    figures = f"{result.states:>8} states{whole} {result.depth:>4} deep {result.seconds:>6.1f} s"
    sys.stdout.write(f"{figures}  {result.config.name}\n")
    for what in result.violations:
        sys.stdout.write(what + "\n")
    sys.stdout.flush()


def _record(results: list[Result]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known["states"] = sum(result.states for result in results)
    known["violations"] = sum(len(result.violations) for result in results)
    known["model"] = {
        "seconds": round(sum(result.seconds for result in results), 1),
        "searches": len(results),
        "searches_whole": sum(result.is_whole for result in results),
        "deepest": max(result.depth for result in results),
        "bounds": {
            "workers": sorted({result.config.replicas for result in results}),
            "faults_at_once": max(result.config.at_once for result in results),
            "strategies": sorted({result.config.rollout["strategy"] for result in results}),
            "policies": sorted({result.config.rollout["onFailure"] for result in results}),
        },
    }
    RESULTS.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
