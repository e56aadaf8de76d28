"""Make a release in build/release: python -m dev.release [--no-images] [--check].

Wheel, sources, plugin, chart and images, each with its SBOM, their provenance, checksums and
signatures. It is made in a clone of its own, so that what is in no commit is not in it.
--check makes it twice, in other surroundings, and compares every byte.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev import cache, environment, steps
from dev.release import comparison, contents, signing
from dev.steps import StepFailed

FOLDER = cache.REPOSITORY / "build" / "release"
ELSEWHERE = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "42"}
"""What the second release of a check is made with, in another folder and at another time."""
UMASK = 0o022
"""Of a release, whatever its maker's: images keep the modes of the files that they copy."""


def main() -> None:
    """Make it, or make it twice."""
    parser = argparse.ArgumentParser(prog="python -m dev.release", description=__doc__)
    parser.add_argument("--no-images", action="store_true", help="leave the two images out")
    parser.add_argument("--check", action="store_true", help="make it twice and compare")
    options = parser.parse_args()
    key = _key()
    order = [_git("rev-parse", "HEAD"), _epoch()]
    order += [f"--key={key}"] if key else []
    order += ["--no-images"] if options.no_images else []
    make(FOLDER, order)
    if options.check:
        again = FOLDER.with_name("release-again")
        make(again, order, ELSEWHERE)
        compare(FOLDER, again)
        shutil.rmtree(again)
    if key is None:
        steps.say("Not signed: RELEASE_KEY names no key (see CONTRIBUTING.md, Release).")


def _key() -> Path | None:
    """Return where the key lies, if there is one; a signature names a commit."""
    named = environment.variable("RELEASE_KEY")
    if named:
        signing.Key.load(Path(named))
    if _git("status", "--porcelain"):
        if named:
            raise StepFailed("the work tree has changes; commit them, a signature names a commit")
        steps.say("The work tree has changes; the release is of the last commit, without them.")
    return Path(named).absolute() if named else None


def _epoch() -> str:
    return environment.variable("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")


def _git(*words: str) -> str:
    argv = ["git", *words]
    done = subprocess.run(
        argv, cwd=cache.REPOSITORY, check=False, capture_output=True, text=True, umask=UMASK
    )
    if done.returncode:
        raise StepFailed(f"`git {' '.join(words)}`: {done.stderr.strip()}; release from a clone")
    return done.stdout.strip()


def make(folder: Path, order: Sequence[str], surroundings: Mapping[str, str] | None = None) -> None:
    """Make a release in a folder, which is emptied before; the order begins with the commit."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="rlfleet-release-") as scratch:
        tree = Path(scratch, "tree")
        _git("clone", "--quiet", "--no-checkout", "--shared", str(cache.REPOSITORY), str(tree))
        _git("-C", str(tree), "checkout", "--quiet", "--detach", order[0])
        _make_in(tree, [str(folder), *order], surroundings or {})
    for path in sorted(folder.iterdir()):
        steps.say(f"{path.stat().st_size / 1024:>12,.0f} KiB  {path.name}")


def _make_in(tree: Path, words: Sequence[str], surroundings: Mapping[str, str]) -> None:
    argv = [sys.executable, "-m", "dev.release.tree", *words]
    variables = {**environment.everything(), **surroundings}
    done = subprocess.run(argv, cwd=tree, env=variables, umask=UMASK, check=False)
    if done.returncode:
        raise StepFailed(f"no release in {words[0]}: it failed with {done.returncode}, see above")


def compare(one: Path, other: Path) -> None:
    """Raise unless both folders have the same files with the same bytes."""
    first, second = digests(one), digests(other)
    differ = sorted(name for name in first | second if first.get(name) != second.get(name))
    if differ:
        for name in differ:
            steps.say("\n".join(comparison.differences(one / name, other / name)))
        raise StepFailed(f"two releases of one commit differ in {', '.join(differ)}; see {other}")
    steps.say(f"Made twice: {len(first)} files, the same bytes.")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file."""
    return {path.name: contents.sha256(path) for path in sorted(folder.iterdir())}


if __name__ == "__main__":
    steps.main(main)
