"""The operator's Prometheus metrics, and the server of /metrics, /healthz and /readyz.

The server has its own thread, so that /healthz can report an event loop that hangs.
"""

import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    Counter,
    Gauge,
    Histogram,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rlfleet_operator.core.metrics import additions, gauges
from rlfleet_operator.core.metrics.additions import Additions
from rlfleet_operator.core.metrics.gauges import Sample
from rlfleet_operator.core.model.world import Fleet, World
from rlfleet_operator.core.rollout.rollout import COMPLETED, ENDED
from rlfleet_operator.crd.fleet_status import FleetStatus

# They would be a second series for each counter and histogram, of no use to users.
disable_created_metrics()  # type: ignore[no-untyped-call]

_log = logging.getLogger(__name__)
_OF_FLEET = ("namespace", "fleet")
API_REQUESTS = Counter("rlfleet_api_requests", "Requests to the Kubernetes API.", ["method"])
API_BYTES = Counter("rlfleet_api_sent_bytes", "Request body bytes sent to the Kubernetes API.")
STATUS_WRITES = Counter("rlfleet_status_writes", "Writes of a fleet's status.", _OF_FLEET)
ADMIN_REQUESTS = Counter("rlfleet_admin_requests", "Requests to sidecars.", ["verb", "code"])
TRAINER_REQUESTS = Counter(
    "rlfleet_trainer_requests", "Requests to the fleet API.", ["route", "code"]
)
STALE_EPOCHS = Counter(
    "rlfleet_stale_epochs", "Workers that reported a higher epoch than this driver's."
)
ROLLOUTS = Counter("rlfleet_rollouts", "Rollouts that ended.", [*_OF_FLEET, "result"])
ROLLOUT_TIME = Histogram(
    "rlfleet_rollout_seconds",
    "Duration of the rollouts that completed.",
    _OF_FLEET,
    buckets=(1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
)
WINDOW = Histogram(
    "rlfleet_window_seconds",
    "Pause windows: from gate closed until requests pass, one worker's change each.",
    _OF_FLEET,
    buckets=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
STEP_TIME = Summary(
    "rlfleet_change_step_seconds",
    "Duration of the steps of workers' changes.",
    [*_OF_FLEET, "step"],
)
PREPARED_BYTES = Counter(
    "rlfleet_prepared_bytes", "Bytes of the versions that workers prepared.", _OF_FLEET
)
REJECTIONS = Counter(
    "rlfleet_rejections",
    "Versions that a worker rejected before a pause.",
    [*_OF_FLEET, "code"],
)
LOAD_FAILURES = Counter(
    "rlfleet_load_failures",
    "Failed changes: the engine exited during the load, or a step failed.",
    [*_OF_FLEET, "kind"],
)
DRIVER_FAILURES = Counter(
    "rlfleet_driver_failures",
    "Drivers that an operator defect ended; each restarts after a pause.",
    _OF_FLEET,
)
LEADER = Gauge("rlfleet_leader", "1 while this process leads, else 0.")
RECONCILE = Histogram("rlfleet_reconcile_seconds", "Duration of one pass over a fleet.")

_STALE_S = 30.0
_BY_LABEL = (
    (ROLLOUTS, sorted(ENDED)),
    (LOAD_FAILURES, additions.FAILURES),
    (REJECTIONS, additions.REJECTIONS),
    (STEP_TIME, additions.STEPS),
)
"""Series of a fleet with one more label, and each of its values."""
_ALONE = (STATUS_WRITES, DRIVER_FAILURES, PREPARED_BYTES, WINDOW, ROLLOUT_TIME)


class FleetGauges(Collector):
    """The gauges of each fleet, as its last pass computed them: a scrape computes nothing."""

    def __init__(self) -> None:
        """Start without a fleet."""
        self._shown: dict[tuple[str, str], Sequence[Sample]] = {}

    def show(self, namespace: str, fleet: str, samples: Sequence[Sample]) -> None:
        """Replace a fleet's gauges."""
        self._shown[namespace, fleet] = samples

    def show_conditions(
        self, namespace: str, fleet: str, conditions: Iterable[Mapping[str, Any]]
    ) -> None:
        """Replace a fleet's conditions by those of a status as JSON, after a pass that failed."""
        known = self._shown.get((namespace, fleet), ())
        others = [sample for sample in known if sample.name != gauges.CONDITION]
        told = ((str(c["type"]), str(c["status"]), str(c["reason"])) for c in conditions)
        self.show(namespace, fleet, [*gauges.condition_samples(told), *others])

    def forget(self, namespace: str, fleet: str) -> None:
        """Remove a fleet's gauges."""
        self._shown.pop((namespace, fleet), None)

    def clear(self) -> None:
        """Remove all gauges, because the next leader exports them."""
        self._shown.clear()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return all gauges; called by the server's thread."""
        families = {
            name: GaugeMetricFamily(name, family.help, labels=[*_OF_FLEET, *family.labels])
            for name, family in gauges.FAMILIES.items()
        }
        for key, samples in list(self._shown.items()):
            for name, value, labels in samples:
                families[name].add_metric([*key, *labels], value)
        yield from families.values()


FLEETS = FleetGauges()
REGISTRY.register(FLEETS)


def begin(namespace: str, fleet: str) -> None:
    """Set a fleet's counters to 0, so that its first failed rollout shows as an increase."""
    for series, values in _BY_LABEL:
        for value in values:
            series.labels(namespace, fleet, value)
    for alone in _ALONE:
        alone.labels(namespace, fleet)


def show(world: World, status: FleetStatus) -> None:
    """Set the gauges of a fleet."""
    about = world.fleet
    FLEETS.show(about.namespace, about.name, gauges.gauges(world, status))


def count(namespace: str, fleet: str, found: Iterable[Additions]) -> None:
    """Add what workers' reports add to their fleet's counters."""
    about = (namespace, fleet)
    for one in found:
        if one.change is not None:
            WINDOW.labels(*about).observe(one.change.window_s)
            for step in additions.STEPS:
                STEP_TIME.labels(*about, step).observe(getattr(one.change, f"{step}_s"))
        if one.rejection is not None:
            REJECTIONS.labels(*about, one.rejection).inc()
        if one.failure is not None:
            LOAD_FAILURES.labels(*about, one.failure).inc()
        PREPARED_BYTES.labels(*about).inc(one.prepared_bytes)
        LOAD_FAILURES.labels(*about, additions.EXITED).inc(one.exits)


def count_status(fleet: Fleet, status: FleetStatus) -> None:
    """Count one write of a status, and the ended rollout that it adds."""
    about = (fleet.namespace, fleet.name)
    STATUS_WRITES.labels(*about).inc()
    old, new = fleet.status.rollout, status.rollout
    # By id too: a rollout with nothing to do ends in the write that records it.
    is_counted = old and new and (old.id, old.phase) == (new.id, new.phase)
    if new and new.phase in ENDED and not is_counted:
        ROLLOUTS.labels(*about, new.phase).inc()
        if new.phase == COMPLETED and new.seconds is not None:
            ROLLOUT_TIME.labels(*about).observe(new.seconds)


def forget(namespace: str, fleet: str) -> None:
    """Remove every series of a deleted fleet."""
    about = {"namespace": namespace, "fleet": fleet}
    for series in (*_ALONE, *(one for one, _ in _BY_LABEL)):
        series.remove_by_labels(about)
    FLEETS.forget(namespace, fleet)


class Health:
    """The operator's liveness and readiness."""

    def __init__(self) -> None:
        """Start alive, but not ready."""
        self._beat = time.monotonic()
        self.is_listed = False
        """Whether the process watches pods and fleets."""
        self.obstacle: str | None = None
        """Why the process cannot lead until a user acts; None if it may."""

    def beat(self) -> None:
        """Record that the event loop runs."""
        self._beat = time.monotonic()

    @property
    def lacks(self) -> str | None:
        """Why the process is not ready; None if it is, also as a standby."""
        return self.obstacle if self.is_listed else "fleets or pods not listed"

    @property
    def age_s(self) -> float:
        """Seconds since the last beat."""
        return time.monotonic() - self._beat


class _Server(ThreadingHTTPServer):
    """Writes no traceback of its own: every line of the log is JSON."""

    def handle_error(self, *_: object) -> None:
        """Log a defect; a probe that has given up on us is none."""
        if not isinstance(sys.exception(), ConnectionError):
            _log.error("Request for metrics or health failed", exc_info=True)


def serve(port: int, health: Health) -> int:
    """Serve /metrics, /healthz and /readyz from a daemon thread until the process ends.

    Returns the port, which the system chooses for 0.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
            elif self.path == "/healthz":
                text = f"event loop ran {health.age_s:.1f} s ago (limit {_STALE_S:.0f} s)\n"
                self._probe(text, is_well=health.age_s < _STALE_S)
            elif self.path == "/readyz":
                lacks = health.lacks
                text = "ready\n" if lacks is None else f"not ready: {lacks}\n"
                self._probe(text, is_well=lacks is None)
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

    server = _Server(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])
