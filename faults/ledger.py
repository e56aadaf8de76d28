"""The ledger of one run: all requests to API server, sidecars and engines, and its one fault.

Both proxies and the door of each engine report every request. The ledger counts after it is
opened, so that no fault hits a workload's preparations.
"""

import json
import time
from collections import Counter
from typing import Any

from faults.plan import Place, Plan, Side

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Ledger:
    """The requests of one run, in order."""

    def __init__(self, plan: Plan | None) -> None:
        """Look for the plan's place; None means to record alone."""
        self.plan = plan
        self.places: list[Place] = []
        self.fired_at: float | None = None
        """When the fault struck, by the monotonic clock."""
        self.wrote_at = time.monotonic()
        """When the operator last asked for something that changes anything."""
        self.is_open = False
        self._counts: Counter[tuple[Side, str]] = Counter()

    def open(self) -> None:
        """Count from now on."""
        self.is_open = True

    def strikes(self, side: Side, key: str) -> str | None:
        """Note a request; return the mode of the fault that strikes it, if one does."""
        if side is not Side.ENGINE:
            self.wrote_at = time.monotonic()
        if not self.is_open:
            return None
        self._counts[side, key] += 1
        place = Place(side, key, self._counts[side, key])
        self.places.append(place)
        if self.plan is None or self.plan.place != place:
            return None
        self.fired_at = time.monotonic()
        return self.plan.mode

    def before_fault(self) -> list[Place]:
        """Return the requests that came before the one that was struck."""
        if self.plan is None or self.plan.place not in self.places:
            return []
        return self.places[: self.places.index(self.plan.place)]

    @property
    def quiet_s(self) -> float:
        """How long the operator has changed nothing."""
        return time.monotonic() - self.wrote_at


def api_key(method: str, path: str, body: bytes) -> str:
    """Name a write to the API server: verb, kind, object."""
    kind, name, part = _parts(path)
    if not name:
        name = _name_in(kind, body)
    return f"{method} {kind}{'/' + part if part else ''} {name}"


def _parts(path: str) -> tuple[str, str, str]:
    """Split a path into kind, name and subresource."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[0] == "namespaces":
        words = words[2:] or words
    kind, name, part, *_ = [*words, "", "", ""]
    return kind, name, part


def _name_in(kind: str, body: bytes) -> str:
    found: dict[str, Any] = json.loads(body)
    if kind == "events":
        return str(found.get("reason", ""))
    return str((found.get("metadata") or {}).get("name", ""))


def sidecar_key(path: str, worker: str) -> str:
    """Name a command to a sidecar: verb, worker."""
    return f"{path.rpartition('/')[2]} {worker}"
