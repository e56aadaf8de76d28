"""Make a release in build/release: python -m dev.release [--no-images] [--check].

Wheel, sources, plugin, chart and images, each with its SBOM, their provenance, checksums and
signatures. --check makes it twice and compares every byte.
"""

import argparse
import shutil
import subprocess
from pathlib import Path

from dev import cache, environment, steps
from dev.release import contents, signing
from dev.release.contents import Plan
from dev.steps import StepFailed

FOLDER = cache.REPOSITORY / "build" / "release"


def main() -> None:
    """Make it, or make it twice."""
    parser = argparse.ArgumentParser(prog="python -m dev.release", description=__doc__)
    parser.add_argument("--no-images", action="store_true", help="leave the two images out")
    parser.add_argument("--check", action="store_true", help="make it twice and compare")
    options = parser.parse_args()
    plan = _plan(with_images=not options.no_images)
    _make(FOLDER, plan)
    if options.check:
        again = FOLDER.with_name("release-again")
        _make(again, plan)
        compare(FOLDER, again)
        shutil.rmtree(again)
    if plan.key is None:
        steps.say("Not signed: RELEASE_KEY names no key (see CONTRIBUTING.md, Release).")


def _plan(*, with_images: bool) -> Plan:
    named = environment.variable("RELEASE_KEY")
    key = signing.Key.load(Path(named)) if named else None
    if key and _git("status", "--porcelain"):
        raise StepFailed("the work tree has changes; commit them, a signature names a commit")
    epoch = environment.variable("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    return Plan(int(epoch), _git("rev-parse", "HEAD"), key, with_images)


def _git(*words: str) -> str:
    argv = ["git", *words]
    done = subprocess.run(argv, cwd=cache.REPOSITORY, check=False, capture_output=True, text=True)
    if done.returncode:
        raise StepFailed(f"`git {' '.join(words)}`: {done.stderr.strip()}; release from a clone")
    return done.stdout.strip()


def _make(folder: Path, plan: Plan) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    steps.run(contents.make_steps(folder, plan))
    for path in sorted(folder.iterdir()):
        steps.say(f"{path.stat().st_size / 1024:>12,.0f} KiB  {path.relative_to(cache.REPOSITORY)}")


def compare(one: Path, other: Path) -> None:
    """Raise unless both folders have the same files with the same bytes."""
    first, second = digests(one), digests(other)
    differ = sorted(name for name in first | second if first.get(name) != second.get(name))
    if differ:
        raise StepFailed(f"two releases of one commit differ in {', '.join(differ)}; see {other}")
    steps.say(f"Made twice: {len(first)} files, the same bytes.")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file."""
    return {path.name: contents.sha256(path) for path in sorted(folder.iterdir())}


if __name__ == "__main__":
    steps.main(main)
