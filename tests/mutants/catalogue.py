"""Small defects, as data: a line of one file, and what it is replaced by."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect, and the tests that are most likely to see it."""

    name: str
    breaks: str
    tests: tuple[str, ...]
    file: str
    edits: tuple[tuple[str, str], ...]
    """Lines as they are, and as they are in the defect."""


def mutants() -> list[Mutant]:
    """Read them all; raises KeyError for a defect that lacks a field."""
    found = [
        _read(name, told)
        for path in sorted(FOLDER.glob("*.toml"))
        for name, told in tomllib.loads(path.read_text()).items()
    ]
    return sorted(found, key=lambda mutant: mutant.name)


def _read(name: str, told: dict[str, Any]) -> Mutant:
    edits = zip(_listed(told["line"]), _listed(told["replacement"]), strict=True)
    return Mutant(name, told["breaks"], tuple(told["tests"]), told["file"], tuple(edits))


def _listed(told: str | list[str]) -> list[str]:
    return [told] if isinstance(told, str) else told


def broken(mutant: Mutant, text: str) -> str:
    """Return the file's text with the defect; raises ValueError for a line not there once."""
    for line, replacement in mutant.edits:
        if text.count(line) != 1:
            raise ValueError(
                f"{mutant.name}: {mutant.file} has the line {text.count(line)} times, expected"
                f" once: write it as it is now, or delete the defect: {line}"
            )
        text = text.replace(line, replacement)
    return text
