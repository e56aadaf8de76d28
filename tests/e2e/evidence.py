"""What a failed end-to-end test leaves for whoever has to find out why."""

from dev.node import layout
from dev.shell import Shell

_LINES = 40


def gathered(shell: Shell) -> str:
    """Return how pods and fleets are, and what the node last did, in its own words."""
    looks = (
        ("get", "pods,rlf", "-o", "wide"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status}{'\\n'}{end}"),
    )
    said = [shell.kubectl(*words, check=False) for words in looks]
    logs = (layout.logs() / f"{name}.log" for name in ("kubelet", "containerd"))
    # Only a cluster of our own has them.
    said += ["\n".join(log.read_text().splitlines()[-_LINES:]) for log in logs if log.exists()]
    return "\n".join(said)
