"""Runs the operator, or prints the plan of a manifest (cli_plan.py)."""

import argparse
import asyncio
import gc
import os
import resource
import sys

from rlfleet_contract import __version__
from rlfleet_contract.settings import SettingsError
from rlfleet_operator import cli_plan, json_logs, kopf_app, metrics
from rlfleet_operator.settings import OperatorSettings

_COLLECTED_AFTER = (20_000, 10, 10)
"""Python's own (700, 10, 10) take a tenth of the CPU with 10,000 workers."""


def open_all_files() -> None:
    """Raise the limit of open files to the hard one: each worker takes up to three connections.

    The soft limit is 1,024 in many container runtimes.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    """Run until stopped; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rlfleet_operator",
        description="Reconcile RLInferenceFleet objects. Without a command it runs the operator;"
        " its settings are environment variables:",
        epilog=OperatorSettings.variables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rlfleet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="plan")
    cli_plan.add_arguments(
        commands.add_parser(
            "plan",
            help="preview the rollout of a manifest; changes nothing",
            description="Preview the rollout of a manifest: which workers change, in which order,"
            " and the expected pause. Changes nothing.",
        )
    )
    arguments = parser.parse_args()
    if arguments.command == "plan":
        return cli_plan.main(arguments)
    try:
        chosen = OperatorSettings.load(os.environ)  # noqa: TID251 - the one reader
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    json_logs.configure(chosen.log_level)
    health = metrics.Health()
    if chosen.metrics_port:
        metrics.serve(chosen.metrics_port, health)
    open_all_files()
    # Workers live long, and a pass over thousands makes as many values that live shortly.
    gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    asyncio.run(kopf_app.run(chosen, health))
    return 0


if __name__ == "__main__":
    sys.exit(main())
