"""Command line of the one-node cluster: python3 -m dev.node up | down | status."""

import sys

from dev import steps
from dev.node import cluster


def main() -> None:
    """Do what the one argument says."""
    commands = {"up": _up, "down": cluster.down, "status": cluster.status}
    match sys.argv[1:]:
        case [name] if name in commands:
            commands[name]()
        case _:
            sys.exit(f"usage: python3 -m dev.node {'|'.join(commands)}")


def _up() -> None:
    steps.say(f"export KUBECONFIG={cluster.up()}")


if __name__ == "__main__":
    steps.main(main)
