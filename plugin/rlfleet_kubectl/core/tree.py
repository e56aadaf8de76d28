"""The tree that `status` shows: fleet, conditions, rollout, workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text
from rich.tree import Tree

from rlfleet_view import progress, reasons
from rlfleet_view.fleet import (
    ConditionRow,
    ObservedFleet,
    RolloutRow,
    WorkerRow,
    age,
    moment,
)
from rlfleet_view.page import ALERTS
from rlfleet_view.reasons import Reasons
from rlfleet_view.tone import Tone, tone_of
from rlfleet_view.verdict import SyncState, judged, summary

BAR = 24
_STATES = {SyncState.SYNCED: "green", SyncState.STALLED: "bold red", SyncState.BEHIND: "yellow"}
_TONES = {Tone.GOOD: "green", Tone.BUSY: "yellow", Tone.BAD: "bold red"}
OTHERWISE = "yellow"


@dataclass(frozen=True, slots=True)
class Style:
    """What the tree is drawn with."""

    now: datetime
    reasons: Reasons
    is_ascii: bool = False


def style_of(phase: str) -> str:
    """Return the colour of a phase of a worker or rollout."""
    return _TONES[tone_of(phase)]


def tree(fleet: ObservedFleet, style: Style) -> Tree:
    """Return the tree of a fleet."""
    drawn = Tree(_head(fleet), guide_style="dim")
    drawn.add(_versions(fleet))
    for condition in fleet.conditions:
        if condition.type in ALERTS and condition.is_true:
            _add_condition(drawn, condition, style)
    rollout = fleet.rollout
    if rollout is not None:
        _add_rollout(drawn, fleet, rollout, style)
    _add_workers(drawn, fleet)
    return drawn


def _head(fleet: ObservedFleet) -> Text:
    found = judged(fleet)
    head = Text()
    head.append(fleet.name, "bold")
    head.append(f"  {fleet.namespace}  ", "dim")
    head.append(found.state, _STATES.get(found.state, OTHERWISE))
    return head.append(f"  {summary(fleet)}")


def _versions(fleet: ObservedFleet) -> Text:
    line = Text("target ")
    line.append(fleet.asked or "none", "bold")
    line.append(f" ({fleet.source})  ", "dim")
    line.append("serving ")
    line.append(fleet.serving or "several or none", "bold" if fleet.serving else OTHERWISE)
    latest = (fleet.status.get("latest") or {}).get("version")
    return line.append(f"  newest in the store {latest}") if latest else line


def _add_condition(drawn: Tree, condition: ConditionRow, style: Style) -> None:
    line = Text()
    line.append(f"{condition.type} {condition.reason}", "bold red")
    branch = drawn.add(line.append(f": {condition.message}"))
    for action in reasons.actions(style.reasons, condition.reason):
        branch.add(Text(f"do: {action}"))


def _add_rollout(drawn: Tree, fleet: ObservedFleet, rollout: RolloutRow, style: Style) -> None:
    line = Text(f"rollout {rollout.id}  ")
    line.append(f"{rollout.before or 'none'} {'->' if style.is_ascii else '→'} {rollout.to}  ")
    line.append(rollout.phase, style_of(rollout.phase))
    line.append(f"  {fleet.spec_at('rollout.strategy') or 'Rolling'}  ", "dim")
    branch = drawn.add(line.append(_when(rollout, style.now), "dim"))
    copied = progress.prepared(rollout)
    if copied is not None:
        branch.add(_bar("prepared", copied, style))
    # The count is of the target, which may have moved on.
    if fleet.target == rollout.to:
        branch.add(_bar("proved", progress.proved(fleet), style))
    if rollout.window_max_ms is not None:
        branch.add(Text(f"window    {rollout.window_max_ms} ms at most"))
    for message in _messages(fleet, rollout):
        branch.add(Text(message))


def _messages(fleet: ObservedFleet, rollout: RolloutRow) -> list[str]:
    """Return what the operator says about a rollout, but for what is drawn elsewhere."""
    moving = fleet.condition("Reconciling")
    found = [f"{moving.reason}: {moving.message}"] if moving and moving.is_true else []
    if rollout.message and not fleet.is_true("Stalled"):
        found.append(rollout.message)
    return found


def _when(rollout: RolloutRow, now: datetime) -> str:
    since = age((now - moment(rollout.started_at)).total_seconds())
    took = f", took {rollout.seconds:.0f} s" if rollout.seconds is not None else ""
    return f"began {since} ago{took}"


def _bar(name: str, share: progress.PartDone, style: Style) -> Text:
    line = Text(f"{name:<9} ")
    drawn = progress.bar(share.done, BAR, is_ascii=style.is_ascii)
    line.append(drawn, "green" if share.done >= 1 else OTHERWISE)
    return line.append(f" {share.text}")


def _add_workers(drawn: Tree, fleet: ObservedFleet) -> None:
    rows = fleet.workers
    ready = fleet.status.get("readyReplicas") or 0
    branch = drawn.add(Text(f"workers  {ready} of {fleet.replicas} take traffic"))
    for row in rows:
        branch.add(_worker(row, rows))
    if fleet.left_out:
        branch.add(Text(f"and {fleet.left_out} that status leaves out", "dim"))


def _worker(row: WorkerRow, rows: Sequence[WorkerRow]) -> Text:
    line = Text()
    line.append(row.name.ljust(max(len(r.name) for r in rows)))
    line.append("  ")
    line.append(row.phase.ljust(max(len(r.phase) for r in rows)), style_of(row.phase))
    line.append("  ")
    line.append((row.version or "-").ljust(max(len(r.version or "-") for r in rows)))
    if row.window_ms is not None:
        line.append(f"  window {row.window_ms} ms")
    if row.phase == "Serving" and not row.is_ready:
        line.append("  not ready", OTHERWISE)
    return line.append(f"  {row.message}", "red" if row.message else "") if row.message else line
