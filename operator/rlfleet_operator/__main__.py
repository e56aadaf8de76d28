"""Runs the operator, or prints the plan of a manifest (cli_plan.py)."""

import argparse
import asyncio
import sys

from rlfleet_operator import cli_plan, json_logs, kopf_app, metrics, settings


def main() -> int:
    """Run until stopped; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rlfleet_operator",
        description="Reconcile RLInferenceFleet objects. Without a command it runs the operator;"
        " its settings are environment variables (in parentheses: the default):",
        epilog=_variables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
  RLFLEET_NAMESPACES           namespaces to watch, comma-separated (all)
  RLFLEET_ADMIN_PORT           port of the sidecars (8090)
  RLFLEET_METRICS_PORT         port of /metrics, /healthz and /readyz (8081; 0: not served)
  RLFLEET_FLEETS_PORT          port of the fleet API for trainers (0: not served)
  RLFLEET_POLL_SECONDS         interval of state requests to an idle worker (10)
  RLFLEET_SIDECAR_CONCURRENCY  concurrent state requests to all sidecars (128)
  RLFLEET_WATCH_SILENCE_SECONDS
                               seconds without an event after which a watch restarts (150)
  RLFLEET_LOG_LEVEL            DEBUG, INFO, WARNING or ERROR (INFO)
  RLFLEET_LEASE_NAME           Lease for leader election (none: no election)
  RLFLEET_LEASE_NAMESPACE      namespace of that Lease (the pod's own)"""


if __name__ == "__main__":
    sys.exit(main())
