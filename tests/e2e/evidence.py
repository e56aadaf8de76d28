"""What a failed end-to-end test leaves behind to find out why."""

import re
from pathlib import Path

from dev.node import layout
from dev.shell import Shell

_LINES = 12
_WIDTH = 300
_TROUBLE = re.compile(r"^[EW]\d{4} |level=(warning|error)|DeadlineExceeded")
"""How kubelet and containerd begin, or mark, a line about something that went wrong."""
_EVENTS = "custom-columns=:.lastTimestamp,:.involvedObject.name,:.reason,:.message"
_CONTAINERS = (
    "jsonpath={range .items[*]}{.metadata.name} since {.metadata.creationTimestamp}"
    " deleted {.metadata.deletionTimestamp}"
    "{range .status.initContainerStatuses[*]} | {.name} {.restartCount} {.state}{end}"
    "{range .status.containerStatuses[*]} | {.name} {.restartCount} {.state}{end}{'\\n'}{end}"
)


def gathered(shell: Shell) -> str:
    """Return how pods and fleets are, and what went wrong on the node, in few lines."""
    looks = (
        ("get", "rlf", "-o", "wide"),
        ("get", "pods", "-o", _CONTAINERS),
        ("get", "events", "--sort-by=.lastTimestamp", "-o", _EVENTS),
    )
    said = [_ends(shell.kubectl(*words, check=False).splitlines()) for words in looks]
    logs = (layout.logs() / f"{name}.log" for name in ("kubelet", "containerd"))
    # Only a cluster of our own has them.
    said += [_troubles(log) for log in logs if log.exists()]
    return "\n".join(said)


def _troubles(log: Path) -> str:
    lines = (line for line in log.read_text().splitlines() if _TROUBLE.search(line))
    return f"{log.name}:\n" + _ends(list(lines))


def _ends(lines: list[str]) -> str:
    return "\n".join(line[:_WIDTH] for line in lines[-_LINES:])
