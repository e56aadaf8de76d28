"""What other projects publish for a cluster, run with the operator: `make test-tools`."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dev import steps
from dev.gitops import tools
from dev.kubernetes import apiserver
from dev.prometheus import programs
from dev.s3 import server
from dev.servers import Servers
from tests.integration.conftest import kubectl


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    steps.run([*tools.build_steps(), *programs.build_steps(), *server.build_steps()])


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Programs that end with the test; what they wrote is shown if it fails."""
    with Servers("rlfleet-tools-") as running:
        yield running
        for log in sorted(running.state.glob("*.log")):
            sys.stdout.write(f"== {log.name}\n{running.log(log.stem)[-6000:]}\n")


def define(plane: apiserver.ControlPlane, definitions: Iterable[Path]) -> None:
    """Give the cluster a project's CRDs."""
    for path in sorted(definitions):
        # Some are too long for the annotation of a client-side apply.
        kubectl(plane, "apply", "--server-side", "-f", str(path))
    apiserver.await_definition(plane)


def written(folder: Path, name: str, text: str) -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(text)
    return path
