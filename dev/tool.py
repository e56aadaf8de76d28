"""Run one of the programs that are built here: python3 -m dev.tool kubectl get pods."""

import os
import sys

from dev import environment, steps, target
from dev.kubernetes import binaries


def main() -> None:
    """Build the program if it is missing and become it."""
    match sys.argv[1:]:
        case [name, *words] if name in binaries.CLIENTS:
            steps.run(binaries.build_steps({name: binaries.CLIENTS[name]}))
            program = str(binaries.path(name))
            variables = {**environment.everything(), "KUBECONFIG": str(target.kubeconfig())}
            os.execve(program, [program, *words], variables)  # noqa: S606 - there is no shell
        case _:
            sys.exit(f"usage: python3 -m dev.tool {'|'.join(binaries.CLIENTS)} …")


if __name__ == "__main__":
    steps.main(main)
