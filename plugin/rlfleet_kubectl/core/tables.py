"""The tables of `get`, `workers` and `history`."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from rlfleet_kubectl.core.tree import style_of
from rlfleet_view import progress
from rlfleet_view.fleet import ObservedFleet, RawObject, RolloutRow, WorkerRow, age, moment
from rlfleet_view.verdict import SyncState, judged, summary

_STATE_STYLES = {SyncState.SYNCED: "green", SyncState.STALLED: "bold red"}


def fleets(found: Sequence[ObservedFleet], now: datetime, *, all_namespaces: bool) -> Table:
    """Return one line per fleet."""
    names = ("NAMESPACE",) if all_namespaces else ()
    drawn = plain_table(*names, "NAME", "READY", "TARGET", "SERVING", "STATE", "STATUS", "AGE")
    for fleet in found:
        created = moment(fleet.raw["metadata"]["creationTimestamp"])
        state = judged(fleet).state
        drawn.add_row(
            *((fleet.namespace,) if all_namespaces else ()),
            fleet.name,
            f"{fleet.status.get('readyReplicas') or 0}/{fleet.replicas}",
            fleet.target or "-",
            fleet.serving or "-",
            Text(state, _STATE_STYLES.get(state, "yellow")),
            summary(fleet),
            age((now - created).total_seconds()),
        )
    return drawn


def workers(rows: Iterable[WorkerRow], pods: dict[str, RawObject], *, is_wide: bool) -> Table:
    """Return one line per worker; ``is_wide`` adds what the pods and the proofs say."""
    more = ("NODE", "RESTARTS", "PROOF") if is_wide else ()
    drawn = plain_table("NAME", "READY", "PHASE", "VERSION", "WINDOW", *more, "MESSAGE")
    for row in rows:
        pod = pods.get(row.name, {})
        wide = (node_of(pod), str(restarts_of(pod)), ",".join(row.layers) or "-")
        drawn.add_row(
            row.name,
            "yes" if row.is_ready else Text("no", "yellow"),
            Text(row.phase, style_of(row.phase)),
            row.version or "-",
            "-" if row.window_ms is None else f"{row.window_ms} ms",
            *(wide if is_wide else ()),
            row.message,
        )
    return drawn


def node_of(pod: RawObject) -> str:
    """Return the node that a pod is on."""
    return str((pod.get("spec") or {}).get("nodeName") or "-")


def restarts_of(pod: RawObject) -> int:
    """Return how often its containers were restarted."""
    return sum(restarts_by_container(pod).values())


def restarts_by_container(pod: RawObject) -> dict[str, int]:
    """Return how often each container was restarted."""
    status = pod.get("status") or {}
    every = (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or [])
    return {one["name"]: one.get("restartCount", 0) for one in every}


def history(rows: Iterable[RolloutRow], now: datetime) -> Table:
    """Return one line per rollout, the newest first."""
    drawn = plain_table(
        "ID", "FROM", "TO", "RESULT", "REASON", "BEGAN", "TOOK", "WINDOW", "BYTES", "MESSAGE"
    )
    for row in rows:
        drawn.add_row(
            str(row.id),
            row.before or "-",
            row.to,
            Text(row.phase, style_of(row.phase)),
            row.reason,
            f"{age((now - moment(row.started_at)).total_seconds())} ago",
            "-" if row.seconds is None else f"{row.seconds:.1f} s",
            "-" if row.window_ms is None else f"{row.window_ms} ms",
            "-" if row.prepared_bytes is None else progress.size(row.prepared_bytes),
            row.message,
        )
    return drawn


def plain_table(*names: str) -> Table:
    """Return a table as kubectl draws one: no lines, three spaces between columns."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for name in names:
        drawn.add_column(name, no_wrap=True)
    return drawn
