"""Fleets as a real operator wrote them, and what GitOps tools must make of each.

tests/integration/gitops/record.py records them anew.
"""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent / "recorded"
VERDICTS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "verdicts.yaml").read_text())
NAMES = sorted(path.stem for path in (HERE / "fleets").glob("*.json"))


def fleet(name: str) -> dict[str, Any]:
    """Return a recorded fleet."""
    raw: dict[str, Any] = json.loads((HERE / "fleets" / f"{name}.json").read_text())
    return raw


def merged(target: Any, patch: Any) -> Any:
    """Return what a JSON merge patch makes of a value (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    made = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made
