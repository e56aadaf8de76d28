"""Faults at every request: python -m faults [all | list | run PLAN.yaml ...].

Records each workload without faults, then runs it once per request and kind of fault.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dev import steps
from dev.kubernetes import apiserver
from dev.steps import say
from faults import campaign
from faults.plan import Plan, spread
from faults.run import Outcome
from faults.workloads import WORKLOADS

CAMPAIGN = 600
"""How many plans a campaign has; all that there are take a night."""
WIDTH = 3 * (os.cpu_count() or 1)
"""A run mostly waits: for its end, and then for nothing to happen."""
RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results" / "faults.json"


def main() -> None:
    """Run the chosen plans; exit with 1 if one failed or its fault did not fire."""
    options = _options()
    # Connections that break and work that is cut short are what this is about.
    for name in ("asyncio", "uvicorn.error", "aiohttp.server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    steps.run(apiserver.ready_steps())
    sys.exit(asyncio.run(_run(options)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("what", choices=("all", "list", "run"), nargs="?", default="all")
    parser.add_argument("plans", nargs="*", type=Path, metavar="PLAN.yaml")
    parser.add_argument("--every", action="store_true", help="inject every mode at every request")
    parser.add_argument(
        "--only", type=int, default=CAMPAIGN, help=f"number of plans, spread over all ({CAMPAIGN})"
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only these")
    parser.add_argument("--mode", action="append", help="only these")
    parser.add_argument("--match", default="", help="only plans with this in their name")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"concurrent runs ({WIDTH})")
    return parser.parse_args()


async def _run(options: argparse.Namespace) -> int:
    begun, at = time.monotonic(), datetime.now(UTC)
    asked = [Plan.read(path) for path in options.plans]
    workloads = {plan.workload for plan in asked} or set(options.workload or WORKLOADS)
    async with campaign.stage() as on:
        known = await campaign.references(on, sorted(workloads), options.width)
        chosen = asked or _chosen(campaign.plans(known, every=options.every), options)
        if options.what == "list":
            say("\n".join(plan.name for plan in chosen))
            return 0
        outcomes = await campaign.carry_out(on, known, chosen, options.width)
    found = summary(outcomes, at, time.monotonic() - begun)
    _print(found)
    if options.what == "all" and len(outcomes) >= CAMPAIGN:
        # The model check and the seeded defects have theirs in the same file.
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(known | found, indent=2) + "\n")
    return int(bool(found["failed"] or found["not_fired"]))


def _chosen(plans: Sequence[Plan], options: argparse.Namespace) -> list[Plan]:
    """Return what is asked for, first the plans that have shown a bug once."""
    workloads = {plan.workload for plan in plans}

    def is_asked_for(plan: Plan) -> bool:
        is_fitting = options.match in plan.name and plan.workload in workloads
        return is_fitting and (not options.mode or plan.mode in options.mode)

    kept = list(filter(is_asked_for, campaign.kept()))
    chosen = spread(filter(is_asked_for, plans), options.only)
    return [*kept, *(plan for plan in chosen if plan not in kept)][: options.only]


def summary(outcomes: Sequence[Outcome], at: datetime, seconds: float) -> dict[str, Any]:
    """Sum up a campaign as bench/results/faults.json has it."""
    return {
        "date": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(seconds),
        "plans": len(outcomes),
        "failed": sum(bool(outcome.broken) for outcome in outcomes),
        "not_fired": sum(not outcome.has_fired for outcome in outcomes),
        "classes": campaign.classes(outcomes),
    }


def _print(found: dict[str, Any]) -> None:
    for row in found["classes"]:
        say("{side:<8} {fault:<18} {plans:>5} plans {failed:>4} failed".format(**row))
    say("{plans} plans, {failed} failed, {not_fired} not fired, {seconds} s".format(**found))


if __name__ == "__main__":
    steps.main(main)
