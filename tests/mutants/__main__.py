"""Put each small defect into a copy of the tree and see that a test fails.

``python -m tests.mutants [--write] [name ...]``: the named defects, or all. The tests that
a defect names come first, then the model check in small, then all quick tests; a defect
that none of them sees has survived. Left out are the catalogue's own tests, which miss the
line of any defect that is put in. ``--write`` notes each result in
bench/results/faults.json, with the earlier results of the others.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import ROOT, Mutant, broken, mutants

RESULTS = ROOT / "bench" / "results" / "faults.json"
MODEL = ("tests/property/test_model.py",)
QUICK = (
    "tests/unit",
    "tests/property",
    "tests/contract",
    "--ignore=tests/unit/tests/test_mutants.py",
)
CAUGHT_AT_LEAST = 0.95
_LIMIT_S = 300


def main() -> int:
    """Strike; returns 1 when too many survive or a defect does not apply."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    struck = [m for m in mutants() if not chosen.names or m.name in chosen.names]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _copy(tree)
        caught: dict[str, str] = {}
        for mutant in struck:
            caught[mutant.name] = _caught_by(mutant, tree)
            if chosen.write:
                _record(mutant.name, caught[mutant.name])
    survivors = [name for name, by in caught.items() if not by]
    sys.stdout.write(f"{len(struck) - len(survivors)} of {len(struck)} defects were caught\n")
    return 0 if len(struck) - len(survivors) >= CAUGHT_AT_LEAST * len(struck) else 1


def _copy(tree: Path) -> None:
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    # Some tests list the tree's files; without this they would fail for any defect.
    subprocess.run(("git", "init", "-q"), cwd=tree, check=True)


def _caught_by(mutant: Mutant, tree: Path) -> str:
    """Return which tests failed with the defect; empty if none did."""
    begun = time.monotonic()
    path = tree / mutant.file
    sound = path.read_text()
    path.write_text(broken(mutant, sound))
    try:
        by = next((told for told, tests in _rounds(mutant) if _is_caught(tests, tree)), "")
    finally:
        path.write_text(sound)
    verdict = f"caught by {by}" if by else "SURVIVED"
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{seconds:>6.1f} s  {mutant.name}: {mutant.breaks} - {verdict}\n")
    sys.stdout.flush()
    return by


def _rounds(mutant: Mutant) -> list[tuple[str, Sequence[str]]]:
    return [
        ("the tests that it names", mutant.tests),
        ("the model check", MODEL),
        ("all quick tests", QUICK),
    ]


def _is_caught(tests: Sequence[str], tree: Path) -> bool:
    """Return whether a test fails; where a busy machine may be the cause, whether it does twice."""
    needs_time = any(path.startswith("tests/contract") for path in tests)
    return _fail(tests, tree) and (not needs_time or _fail(tests, tree))


def _fail(tests: Sequence[str], tree: Path) -> bool:
    """Return whether a test fails; raises RuntimeError when they cannot be run."""
    flags = ("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
    words = (sys.executable, "-m", "pytest", *flags, *tests)
    # The tree's own packages.
    path = {"PYTHONPATH": "operator:sidecar:client:plugin:."}
    try:
        done = subprocess.run(
            words,
            cwd=tree,
            check=False,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            env=_environment() | path,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in {0, 1}:
        # A defect that cannot be imported needs no test.
        raise RuntimeError(f"{tests} could not be run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def _environment() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - handed through to the tests, not read here


def _record(name: str, by: str) -> None:
    """Record one result with those of the other defects that still exist."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    names = {mutant.name for mutant in mutants()}
    seen = known.get("mutants", {}).get("caught_by", {}) | {name: by}
    caught_by = {one: seen[one] for one in sorted(seen.keys() & names)}
    known["mutants"] = {
        "total": len(names),
        "struck": len(caught_by),
        "caught": sum(map(bool, caught_by.values())),
        "survivors": [one for one, told in caught_by.items() if not told],
        "caught_by": caught_by,
    }
    RESULTS.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
