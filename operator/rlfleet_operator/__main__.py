"""Run the operator: read settings, set up logs, serve metrics, hand over to kopf."""

import argparse
import asyncio
import sys

from rlfleet_operator import cli_plan, json_logs, kopf_app, metrics, settings


def main() -> int:
    """Run until stopped; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rlfleet_operator",
        description="Reconcile RLInferenceFleet objects. Without a command the operator runs, with"
        " settings from the environment:",
        epilog=_variables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="plan")
    cli_plan.add_arguments(
        commands.add_parser(
            "plan",
            help="print what applying a manifest would do; changes nothing",
            description="Print what applying a manifest would do: who changes, in which order,"
            " and the pause to expect. Changes nothing.",
        )
    )
    arguments = parser.parse_args()
    if arguments.command == "plan":
        return cli_plan.main(arguments)
    try:
        chosen = settings.from_environment()
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    json_logs.configure(chosen.log_level)
    health = metrics.Health()
    if chosen.metrics_port:
        metrics.serve(chosen.metrics_port, health)
    asyncio.run(kopf_app.run(chosen, health))
    return 0


def _variables() -> str:
    return """\
  RLFLEET_WORKER_IMAGE         image of workers whose fleet names none (required)
  RLFLEET_NAMESPACES           comma-separated; empty means all
  RLFLEET_ADMIN_PORT           where sidecars listen (8090)
  RLFLEET_METRICS_PORT         /metrics and /healthz (8081; 0 means none)
  RLFLEET_FLEETS_PORT          /fleets/NAMESPACE/NAME/v1/rl/... for trainers (0: none)
  RLFLEET_POLL_SECONDS         how often a worker at rest is asked (10)
  RLFLEET_SIDECAR_CONCURRENCY  questions to sidecars under way at once (128)
  RLFLEET_WATCH_SILENCE_SECONDS
                               a watch that is silent for longer is dead (150)
  RLFLEET_LOG_LEVEL            DEBUG, INFO, WARNING or ERROR (INFO)
  RLFLEET_LEASE_NAME           Lease by which one of several processes leads; empty: no election
  RLFLEET_LEASE_NAMESPACE      where that Lease is (the pod's own namespace)"""


if __name__ == "__main__":
    sys.exit(main())
