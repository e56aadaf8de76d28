"""What the operator counts, and the server that shows it, in a thread beside the loop.

A thread, so that a loop that hangs is seen: /healthz tells the age of its last beat.
"""

import threading
import time
from collections import Counter as Counts
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from rlfleet_operator.core.model.worker_phase import Phase, phase_of
from rlfleet_operator.core.model.world import Fleet, Worker
from rlfleet_operator.core.rollout.rollout import ENDED
from rlfleet_operator.crd.fleet_status import FleetStatus

API_REQUESTS = Counter("rlfleet_api_requests", "Requests to the Kubernetes API.", ["method"])
API_BYTES = Counter("rlfleet_api_sent_bytes", "Bytes of objects sent to the Kubernetes API.")
STATUS_WRITES = Counter(
    "rlfleet_status_writes", "Writes of a fleet's status.", ["namespace", "fleet"]
)
ADMIN_REQUESTS = Counter("rlfleet_admin_requests", "Calls to sidecars.", ["verb", "code"])
TRAINER_REQUESTS = Counter(
    "rlfleet_trainer_requests", "Requests at the fleet API.", ["route", "code"]
)
STALE_EPOCHS = Counter(
    "rlfleet_stale_epochs", "Workers that were found to have a later driver than this one."
)
ROLLOUTS = Counter("rlfleet_rollouts", "Rollouts that ended.", ["namespace", "fleet", "result"])
WORKERS = Gauge(
    "rlfleet_workers",
    "Workers by phase.",
    ["namespace", "fleet", "phase"],
)
LOAD_FAILURES = Counter(
    "rlfleet_load_failures",
    "Loads that failed on a worker: the engine exited, or the version was refused.",
    ["namespace", "fleet", "kind"],
)
DRIVER_FAILURES = Counter(
    "rlfleet_driver_failures",
    "Drivers that failed by a defect, each replaced after a pause.",
    ["namespace", "fleet"],
)
LEADER = Gauge("rlfleet_leader", "1 while this process leads, 0 while it stands by.")
RECONCILE = Histogram("rlfleet_reconcile_seconds", "One pass over a fleet, without waiting.")

_STALE_S = 30.0
_EXITED, _REFUSED = "EngineExited", "Refused"


def begin(namespace: str, fleet: str) -> None:
    """Begin the counters of a fleet at 0: the first rollout that fails must be an increase."""
    for result in sorted(ENDED):
        ROLLOUTS.labels(namespace, fleet, result)
    for kind in (_EXITED, _REFUSED):
        LOAD_FAILURES.labels(namespace, fleet, kind)
    for counter in (STATUS_WRITES, DRIVER_FAILURES):
        counter.labels(namespace, fleet)


def count_workers(fleet: Fleet, workers: Iterable[Worker]) -> None:
    """Show how many workers are in each phase."""
    found = Counts(phase_of(worker) for worker in workers)
    for phase in Phase:
        WORKERS.labels(fleet.namespace, fleet.name, phase).set(found[phase])


def count_status(fleet: Fleet, status: FleetStatus) -> None:
    """Count one write of a status, and what it says."""
    about = {"namespace": fleet.namespace, "fleet": fleet.name}
    STATUS_WRITES.labels(**about).inc()
    old, new = fleet.status.rollout, status.rollout
    # By its id too: one that has nothing to do ends in the write that records it.
    _count_loads(fleet.status, status, about)
    is_told = old and new and (old.id, old.phase) == (new.id, new.phase)
    if new and new.phase in ENDED and not is_told:
        ROLLOUTS.labels(**about, result=new.phase).inc()


def _count_loads(before: FleetStatus, after: FleetStatus, about: dict[str, str]) -> None:
    old = {worker.name: worker for worker in before.workers}
    for worker in after.workers:
        known = old.get(worker.name)
        exits = (worker.load_exits or 0) - ((known.load_exits or 0) if known else 0)
        if exits > 0:
            LOAD_FAILURES.labels(**about, kind=_EXITED).inc(exits)
        if known and worker.phase == Phase.QUARANTINED and known.phase != worker.phase:
            LOAD_FAILURES.labels(**about, kind=_REFUSED).inc()


def forget(namespace: str, fleet: str) -> None:
    """Remove every series of a fleet that is gone."""
    about = {"namespace": namespace, "fleet": fleet}
    for series in (STATUS_WRITES, ROLLOUTS, WORKERS, DRIVER_FAILURES, LOAD_FAILURES):
        series.remove_by_labels(about)


class Health:
    """The beat of the operator's loop, and whether it could lead at once."""

    def __init__(self) -> None:
        """Begin alive, and not ready."""
        self._beat = time.monotonic()
        self.is_ready = False
        """Whether pods and fleets are being watched; a process that stands by is ready too."""

    def beat(self) -> None:
        """Say that the loop runs."""
        self._beat = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since the last beat."""
        return time.monotonic() - self._beat


def serve(port: int, health: Health) -> None:
    """Serve /metrics, /healthz and /readyz from a daemon thread until the process ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
            elif self.path == "/healthz":
                text = f"the loop ran {health.age_s:.1f} s ago\n"
                self._tell(text, is_well=health.age_s < _STALE_S)
            elif self.path == "/readyz":
                text = "watching\n" if health.is_ready else "not watching yet\n"
                self._tell(text, is_well=health.is_ready)
            else:
                self._answer(404, "text/plain", b"try /metrics, /healthz or /readyz\n")

        def _tell(self, text: str, *, is_well: bool) -> None:
            self._answer(200 if is_well else 503, "text/plain", text.encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: probes come every few seconds."""

    server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
