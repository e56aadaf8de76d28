"""Run kubectl or helm for the cluster in use: python3 -m dev.tool kubectl get pods."""

import os
import shutil
import sys

from dev import environment, steps, target
from dev.kubernetes import binaries


def main() -> None:
    """Build what is missing and become the program."""
    match sys.argv[1:]:
        case [name, *words] if name in binaries.CLIENTS:
            steps.run(target.client_steps(name))
            program = str(shutil.which(name, path=target.search_path()))
            variables = {**environment.everything(), "KUBECONFIG": str(target.kubeconfig())}
            os.execve(program, [program, *words], variables)  # noqa: S606 - there is no shell
        case _:
            sys.exit(f"usage: python3 -m dev.tool {'|'.join(binaries.CLIENTS)} …")


if __name__ == "__main__":
    steps.main(main)
