"""Command line of the one-node cluster: python3 -m dev.node up | down | status."""

import sys

from dev import steps
from dev.node import cluster


def main() -> None:
    """Do what the one argument says."""
    commands = {"up": _up, "down": cluster.down, "status": cluster.status}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: python3 -m dev.node {'|'.join(commands)}")
    commands[sys.argv[1]]()


def _up() -> None:
    steps.say(f"export KUBECONFIG={cluster.up()}")


if __name__ == "__main__":
    steps.main(main)
