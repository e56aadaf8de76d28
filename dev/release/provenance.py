"""Where a release comes from: an in-toto statement with a SLSA v1 predicate.

It says what was built from which commit, by which command, with which locked inputs. It names no
time of its own and no machine, so that the same commit makes the same statement.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dev import cache

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD = "urn:rlfleet:make-release:v1"
BUILDER = "urn:rlfleet:builder:self-hosted"
LOCKS = (
    "requirements/*.lock",
    "dev/images/*.lock",
    "dev/cluster/go.sum",
    "dev/images/Containerfile.*",
    "Dockerfile.*",
)
"""What pins the inputs; the registries' own hashes stand in them."""


def statement(artefacts: Iterable[Path], commit: str, parameters: Mapping[str, Any]) -> bytes:
    """Return the statement about these files, built from a commit."""
    subjects = [{"name": path.name, "digest": _digest(path)} for path in sorted(artefacts)]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD,
            "externalParameters": {"command": "make release", **parameters},
            "resolvedDependencies": [
                {"name": "source", "digest": {"gitCommit": commit}},
                *({"name": name, "digest": _digest(path)} for name, path in _locks()),
            ],
        },
        "runDetails": {"builder": {"id": BUILDER}},
    }
    whole = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": predicate,
    }
    return json.dumps(whole, indent=1).encode() + b"\n"


def _locks() -> list[tuple[str, Path]]:
    found = [path for pattern in LOCKS for path in cache.REPOSITORY.glob(pattern)]
    return sorted((path.relative_to(cache.REPOSITORY).as_posix(), path) for path in found)


def _digest(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
