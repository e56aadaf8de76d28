"""Run the tests with whatever they need: python3 -m dev.suite quick integration faults e2e.

`quick` needs only the Python environment, `integration` and `faults` the Kubernetes binaries,
`e2e` the cluster and the images. What is missing is made first, side by side where
that helps. A cluster that this run started is taken down at its end; one that was
up before stays.
"""

import os
import subprocess
import sys
import time

from dev import binaries, cache, environment, packages, steps, target, venv
from dev.images import build, names
from dev.node import cluster
from dev.steps import StepFailed

PARTS = {
    "quick": ["tests/unit", "tests/property", "tests/contract"],
    "integration": ["tests/integration"],
    "faults": [],
    "e2e": ["tests/e2e"],
}
_PROCESSES = max(2, min(8, 2 * (os.cpu_count() or 1)))
"""How many run tests at once: half of their time they wait, for timeouts that are tested."""
_SHARED = {"quick"}
"""Parts whose tests are shared out among processes."""
_FAULTS = 100
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
        if "quick" in parts:
            _run("quick")
        _build(parts)
        for part in ("integration", "faults"):
            if part in parts:
                _run(part)
        if "e2e" in parts:
            build.make()
            _run("e2e")
    finally:
        if "e2e" in parts and not was_up:
            cluster.down()


def _build(parts: list[str]) -> None:
    """Compile and build images side by side, before the first test that needs either."""
    programs, debian, images = [], [], []
    if {"integration", "faults"} & set(parts):
        programs += [binaries.CONTROL_PLANE]
        debian += [packages.CONTROL_PLANE]
    if "e2e" in parts:
        programs += [binaries.CLIENTS]
    if "e2e" in parts and not target.is_existing():
        programs += [binaries.NODE]
        debian += [packages.NODE, packages.IMAGES]
        images = names.ours()
    steps.run(packages.steps(*debian))
    steps.run(binaries.build_steps(*programs), build.build_steps(images))


def _run(part: str) -> None:
    started = time.monotonic()
    argv = [str(venv.python()), "-m", *_module(part)]
    variables = {
        **environment.everything(),
        "PATH": f"{binaries.path('kubectl').parent}:{environment.search_path()}",
        "PYTHONPATH": "operator:sidecar:.",
    }
    done = subprocess.run(argv, cwd=cache.REPOSITORY, env=variables, check=False)
    steps.say(f"{part} tests … {time.monotonic() - started:.0f} s")
    if done.returncode:
        raise StepFailed(f"{part} tests failed")


def _module(part: str) -> list[str]:
    """Return what Python is to run."""
    if part == "faults":
        return ["faults", f"--only={_FAULTS}"]
    shared = [f"--numprocesses={_PROCESSES}", "--dist=worksteal"] if part in _SHARED else []
    return [
        "pytest",
        *shared,
        *(path for path in _paths(part) if (cache.REPOSITORY / path).exists()),
    ]


def _paths(part: str) -> list[str]:
    """Return what pytest is to collect; guards of the layout are the quickest of all."""
    guards = sorted(cache.REPOSITORY.glob("tests/test_*.py")) if part == "quick" else []
    return [*(str(path.relative_to(cache.REPOSITORY)) for path in guards), *PARTS[part]]


if __name__ == "__main__":
    steps.main(main)
