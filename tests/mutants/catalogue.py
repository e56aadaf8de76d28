"""Small defects, one patch each: a guard that somebody might take away by mistake."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect, and the tests that are most likely to see it."""

    name: str
    breaks: str
    tests: tuple[str, ...]
    patch: Path


def mutants() -> list[Mutant]:
    """Read them all; raises ValueError for a patch that does not say what it breaks."""
    return [_read(path) for path in sorted(FOLDER.glob("*.patch"))]


def _read(path: Path) -> Mutant:
    head = path.read_text().partition("\n\n")[0]
    told = dict(line.split(": ", 1) for line in head.splitlines())
    if told.keys() != {"Breaks", "Tests"}:
        raise ValueError(f"{path.name} must begin with a line Breaks: and a line Tests:")
    return Mutant(path.stem, told["Breaks"], tuple(told["Tests"].split()), path)


def apply(mutant: Mutant, tree: Path, *flags: str) -> str:
    """Apply the patch in a tree; returns git's complaint, empty if there is none."""
    words = ("git", "apply", "--unsafe-paths", *flags, str(mutant.patch))
    done = subprocess.run(words, cwd=tree, check=False, capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""
