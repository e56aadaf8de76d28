"""Run the tests with whatever they need: python3 -m dev.suite quick integration tools faults e2e.

`quick` needs only the Python environment, `integration` and `faults` the Kubernetes binaries,
`e2e` the cluster and the images. A separate process makes these while the other parts run,
because much of it is waiting for a disk, a download, a single thread. A cluster that this run
started is stopped at its end; one that ran before stays.

`make test` leaves `tools` out, which needs the programs of other projects (dev.gitops.tools).
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from dev import cache, environment, steps, target
from dev.gitops import definitions, judge, tools
from dev.kubernetes import binaries, clients
from dev.node import cluster
from dev.prometheus import programs
from dev.python import packages, venv
from dev.s3 import server
from dev.steps import StepFailed

PARTS = {
    "quick": ["tests/unit", "tests/property", "tests/contract"],
    "integration": ["tests/integration", "--ignore=tests/integration/tools"],
    "tools": ["tests/integration/tools"],
    "faults": [],
    "e2e": ["tests/e2e"],
}
_PROCESSES = max(2, min(8, 2 * (os.cpu_count() or 1)))
"""How many run tests at once: half of their time they wait, for timeouts that are tested."""
_SHARED = {"quick", "integration"}
"""Parts whose tests are shared out among processes."""
_FAULTS = 60
"""How many requests are struck, of all that `make faults` strikes."""


def main() -> None:
    """Run the named parts, the quickest first; the first that fails ends the run."""
    parts = sys.argv[1:]
    if not parts or set(parts) - set(PARTS):
        sys.exit(f"usage: python3 -m dev.suite {' '.join(PARTS)}")
    steps.run(venv.make_steps())
    venv.link()
    was_up = target.is_existing() or cluster.is_up()
    try:
        steps.run(packages.steps(*_debian(parts)))
        with _cluster_and_images(parts) as are_made:
            for part in PARTS:
                if part in parts:
                    _make_ready(part, are_made)
                    _run(part)
    finally:
        if "e2e" in parts and not was_up:
            cluster.down()


def _debian(parts: list[str]) -> list[dict[str, str]]:
    """Return which of Debian's packages are needed: two processes cannot install at once."""
    found = []
    if {"integration", "tools", "faults"} & set(parts):
        found += [packages.CONTROL_PLANE]
    if "tools" in parts:
        found += [packages.TOOLS]
    if "integration" in parts:
        found += [packages.BROWSER, packages.SHELLS, packages.FILE_SYSTEMS]
    if "e2e" in parts and not target.is_existing():
        found += [packages.NODE, packages.IMAGES]
    return found


@contextmanager
def _cluster_and_images(parts: list[str]) -> Iterator[Callable[[], None]]:
    """Make cluster and images in the background, if needed; yield a function to wait for them."""
    if "e2e" not in parts:
        yield lambda: None
        return
    words = [sys.executable, "-m", "dev.images"]
    # In a session of its own, so that it can be ended with all that it has started.
    process = subprocess.Popen(words, cwd=cache.REPOSITORY, start_new_session=True)

    def wait() -> None:
        if process.wait():
            raise StepFailed("cluster and images could not be made: see above")

    try:
        yield wait
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _make_ready(part: str, are_made: Callable[[], None]) -> None:
    """Wait for what a part needs, or make it."""
    if part in {"integration", "tools", "faults"}:
        steps.run(binaries.build_steps(binaries.CONTROL_PLANE, binaries.CLIENTS))
    if part == "integration":
        steps.run([*server.build_steps(), *programs.build_steps(), *judge.build_steps()])
        steps.run(definitions.make_steps())
    if part == "tools":
        steps.run([*server.build_steps(), *programs.build_steps(), *tools.build_steps()])
    if part == "e2e":
        are_made()


def _run(part: str) -> None:
    started = time.monotonic()
    argv = [str(venv.python()), "-m", *_module(part)]
    env = variables(environment.everything(), _path(part))
    done = subprocess.run(argv, cwd=cache.REPOSITORY, env=env, check=False)
    steps.say(f"{part} tests … {time.monotonic() - started:.0f} s")
    if done.returncode:
        raise StepFailed(f"{part} tests failed")


def _path(part: str) -> str:
    """Return the PATH of a part: a user's kubectl and helm only for a user's cluster."""
    return target.search_path() if part == "e2e" else clients.search_path(are_users=False)


def variables(ours: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the environment of the tests.

    Bytecode is written whatever the shell says: without it each of the processes rewrites and
    compiles every test again, which is half of the time that collecting takes.
    """
    kept = {name: value for name, value in ours.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PATH": path, "PYTHONPATH": "operator:sidecar:client:plugin:."}


def _module(part: str) -> list[str]:
    """Return what Python is to run."""
    if part == "faults":
        return ["faults", f"--only={_FAULTS}"]
    shared = [f"--numprocesses={_PROCESSES}", "--dist=worksteal"] if part in _SHARED else []
    return [
        "pytest",
        *shared,
        *(word for word in _words(part) if word[0] == "-" or (cache.REPOSITORY / word).exists()),
    ]


def _words(part: str) -> list[str]:
    """Return what pytest is to collect; guards of the layout are the quickest of all."""
    guards = sorted(cache.REPOSITORY.glob("tests/test_*.py")) if part == "quick" else []
    return [*(str(path.relative_to(cache.REPOSITORY)) for path in guards), *PARTS[part]]


if __name__ == "__main__":
    steps.main(main)
