"""The log lines of operator, sidecars and engines, merged by time.

`kubectl logs --timestamps` writes a time before each line. Lines of rlfleet are JSON with a
message and fields; vLLM's are text.
"""

import heapq
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.text import Text

from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet, RawObject, RolloutRow, moment

_KNOWN = frozenset({"time", "level", "logger", "message", "namespace", "fleet", "worker"})
"""Fields that a line shows elsewhere, or that are the same for all lines."""
_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}
_OF_VLLM = re.compile(
    r"(?P<process>\(\w+ pid=\d+\) )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r" \d\d-\d\d (?:\d\d:\d\d:\d\d )?(?P<message>.*)"
)
"""How vLLM begins a line: its time is left out, because kubectl writes a better one."""
AFTER = timedelta(seconds=5)
"""Lines so long after the end of a rollout still belong to it: the last is written after it."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one container."""

    at: datetime
    source: str
    """Pod and container, or the operator's pod."""
    message: str
    level: str = ""
    fields: RawObject = field(default_factory=dict)


def parsed(source: str, text: str) -> Iterator[LogLine]:
    """Yield the lines of a container in their order; a line without a time gets the last one's."""
    at: datetime | None = None
    for line in text.splitlines():
        written, _, rest = line.partition(" ")
        try:
            at = moment(written)
        except ValueError:
            rest = line
        if at is not None:
            yield _line(at, source, rest)


def _line(at: datetime, source: str, rest: str) -> LogLine:
    try:
        found = json.loads(rest) if rest.startswith("{") else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or "message" not in found:
        return _text_line(at, source, rest)
    fields = {name: value for name, value in found.items() if name not in {"time", "logger"}}
    return LogLine(at, source, str(found["message"]), str(found.get("level", "")), fields)


def _text_line(at: datetime, source: str, rest: str) -> LogLine:
    found = _OF_VLLM.fullmatch(rest)
    if found is None:
        return LogLine(at, source, rest)
    message = f"{found['process'] or ''}{found['message']}"
    return LogLine(at, source, message, found["level"], {"level": found["level"]})


def of_fleet(lines: Iterable[LogLine], fleet: ObservedFleet) -> list[LogLine]:
    """Return the operator's lines about this fleet by time.

    It drives other fleets too, and kubectl writes the log of one of its pods after the other's.
    """
    mine = (fleet.namespace, fleet.name)
    found = (one for one in lines if (one.fields.get("namespace"), one.fields.get("fleet")) == mine)
    return sorted(found, key=lambda line: line.at)


def merged(sources: Iterable[Iterable[LogLine]], until: datetime | None) -> Iterator[LogLine]:
    """Yield all lines by time, those of one container in their order."""
    for one in heapq.merge(*sources, key=lambda line: line.at):
        if until is None or one.at <= until:
            yield one


def span(rollout: RolloutRow) -> tuple[datetime, datetime | None]:
    """Return when a rollout began and, once it has ended, until when lines belong to it."""
    began = moment(rollout.started_at)
    if rollout.seconds is None:
        return began, None
    return began, began + timedelta(seconds=rollout.seconds) + AFTER


def chosen(fleet: ObservedFleet, rollout_id: int | None) -> RolloutRow:
    """Return a recorded rollout, the newest without an id; raises PluginError without one."""
    for one in fleet.rollouts:
        if rollout_id in {None, one.id}:
            return one
    known = ", ".join(str(one.id) for one in fleet.rollouts) or "none"
    raise PluginError(
        f"rollout {'of ' + fleet.name if rollout_id is None else rollout_id} is not recorded"
        f" (recorded: {known}); see kubectl rlf history {fleet.name}, or use --since"
    )


def rendered(line: LogLine, width: int) -> Text:
    """Return a line for a person: time, source, level, message, fields."""
    shown = Text(f"{line.at:%H:%M:%S}.{line.at.microsecond // 1000:03}  ", "dim")
    shown.append(line.source.ljust(width), "cyan")
    if line.level:
        shown.append(f"  {line.level:<7}", _COLOURS.get(line.level, ""))
    shown.append(f"  {line.message}")
    for name, value in line.fields.items():
        if name not in _KNOWN:
            shown.append(f"  {name}=", "dim")
            shown.append(value if isinstance(value, str) else json.dumps(value))
    return shown


def as_json(line: LogLine) -> str:
    """Return a line for a program."""
    own = {"time": line.at.isoformat(), "source": line.source, "message": line.message}
    return json.dumps({**line.fields, **own}, ensure_ascii=False)
