"""What a sidecar has written to its journal."""

import json
from pathlib import Path
from typing import Any

from rlfleet_sidecar.state.journal_log import last_record


def journal_of(state: Path) -> dict[str, Any]:
    """Return the last record in a sidecar's folder of state."""
    record = last_record((state / "worker.json").read_bytes())
    assert record is not None
    found = json.loads(record)
    assert isinstance(found, dict)
    return found
