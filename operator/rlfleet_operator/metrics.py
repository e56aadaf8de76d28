"""The operator's Prometheus metrics, and the server of /metrics, /healthz and /readyz.

The server has its own thread, so that /healthz can report an event loop that hangs.
"""

import threading
import time
from collections import Counter as Counts
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from rlfleet_operator.core.model.worker_phase import Phase, phase_of
from rlfleet_operator.core.model.world import Fleet, World
from rlfleet_operator.core.rollout.rollout import ENDED
from rlfleet_operator.crd.fleet_status import FleetStatus

API_REQUESTS = Counter("rlfleet_api_requests", "Requests to the Kubernetes API.", ["method"])
API_BYTES = Counter("rlfleet_api_sent_bytes", "Request body bytes sent to the Kubernetes API.")
STATUS_WRITES = Counter(
    "rlfleet_status_writes", "Writes of a fleet's status.", ["namespace", "fleet"]
)
ADMIN_REQUESTS = Counter("rlfleet_admin_requests", "Requests to sidecars.", ["verb", "code"])
TRAINER_REQUESTS = Counter(
    "rlfleet_trainer_requests", "Requests to the fleet API.", ["route", "code"]
)
STALE_EPOCHS = Counter(
    "rlfleet_stale_epochs", "Workers that reported a higher epoch than this driver's."
)
ROLLOUTS = Counter("rlfleet_rollouts", "Rollouts that ended.", ["namespace", "fleet", "result"])
WORKERS = Gauge(
    "rlfleet_workers",
    "Workers by phase.",
    ["namespace", "fleet", "phase"],
)
LOAD_FAILURES = Counter(
    "rlfleet_load_failures",
    "Failed loads: the engine exited, or the reload or proof of the version failed.",
    ["namespace", "fleet", "kind"],
)
DRIVER_FAILURES = Counter(
    "rlfleet_driver_failures",
    "Drivers that an operator defect ended; each restarts after a pause.",
    ["namespace", "fleet"],
)
LEADER = Gauge("rlfleet_leader", "1 while this process leads, else 0.")
RECONCILE = Histogram("rlfleet_reconcile_seconds", "Duration of one pass over a fleet.")

_STALE_S = 30.0
_EXITED, _REFUSED = "EngineExited", "Refused"


def begin(namespace: str, fleet: str) -> None:
    """Set a fleet's counters to 0, so that its first failed rollout shows as an increase."""
    for result in sorted(ENDED):
        ROLLOUTS.labels(namespace, fleet, result)
    for kind in (_EXITED, _REFUSED):
        LOAD_FAILURES.labels(namespace, fleet, kind)
    for counter in (STATUS_WRITES, DRIVER_FAILURES):
        counter.labels(namespace, fleet)


def count_workers(world: World) -> None:
    """Set the number of workers in each phase."""
    found = Counts(map(phase_of, (*world.exceptional, *world.surplus)))
    found[Phase.SERVING] += len(world.desired) - len(world.exceptional)
    for phase in Phase:
        WORKERS.labels(world.fleet.namespace, world.fleet.name, phase).set(found[phase])


def count_status(fleet: Fleet, status: FleetStatus) -> None:
    """Count one write of a status, and the ended rollout and failed loads that it adds."""
    about = {"namespace": fleet.namespace, "fleet": fleet.name}
    STATUS_WRITES.labels(**about).inc()
    old, new = fleet.status.rollout, status.rollout
    # By id too: a rollout with nothing to do ends in the write that records it.
    _count_loads(fleet.status, status, about)
    is_counted = old and new and (old.id, old.phase) == (new.id, new.phase)
    if new and new.phase in ENDED and not is_counted:
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
    """Remove every series of a deleted fleet."""
    about = {"namespace": namespace, "fleet": fleet}
    for series in (STATUS_WRITES, ROLLOUTS, WORKERS, DRIVER_FAILURES, LOAD_FAILURES):
        series.remove_by_labels(about)


class Health:
    """The operator's liveness and readiness."""

    def __init__(self) -> None:
        """Start alive, but not ready."""
        self._beat = time.monotonic()
        self.is_ready = False
        """Whether the process watches pods and fleets; a standby is ready too."""

    def beat(self) -> None:
        """Record that the event loop runs."""
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
                text = f"event loop ran {health.age_s:.1f} s ago (limit {_STALE_S:.0f} s)\n"
                self._probe(text, is_well=health.age_s < _STALE_S)
            elif self.path == "/readyz":
                text = "ready\n" if health.is_ready else "not ready: fleets or pods not listed\n"
                self._probe(text, is_well=health.is_ready)
            else:
                self._answer(404, "text/plain", b"not found; use /metrics, /healthz or /readyz\n")

        def _probe(self, text: str, *, is_well: bool) -> None:
            self._answer(200 if is_well else 503, "text/plain", text.encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing, because probes come every few seconds."""

    server = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
