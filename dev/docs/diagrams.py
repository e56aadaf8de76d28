"""Diagrams drawn from the code's own tables, as mermaid and Markdown text; nothing acts here.

docs/architecture.md contains their results between two comments. So page and table cannot
differ (tests/test_layout.py).
"""

from collections.abc import Mapping

from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.stage_machine import BACK_TO, TABLE, StageEvent

BEGIN = "<!-- drawn from sidecar/rlfleet_sidecar/state/stage_machine.py: begin -->"
END = "<!-- drawn from sidecar/rlfleet_sidecar/state/stage_machine.py: end -->"


def stages() -> str:
    """Return the stage diagram and what the diagram leaves out, as Markdown."""
    shared = _shared(TABLE)
    told = ", ".join(f"{event} leads to {stage}" for event, stage in shared.items())
    return "\n".join(
        [
            "```mermaid",
            "stateDiagram-v2",
            *(f"    {line}" for line in _edges(TABLE, shared)),
            "```",
            "",
            f"From every stage: {told}.",
            "",
            *_ways_back(BACK_TO),
        ]
    )


def drawn_into(page: str) -> str:
    """Return the page with the present diagram between its two comments."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{stages()}\n\n{END}{tail}"


def _shared(table: Mapping[Stage, Mapping[StageEvent, Stage]]) -> dict[StageEvent, Stage]:
    """Return the events that lead to one and the same stage wherever they happen."""
    everywhere: dict[StageEvent, Stage] = {}
    for event in StageEvent:
        targets = {ways.get(event) for ways in table.values()}
        if len(targets) == 1 and (target := targets.pop()) is not None:
            everywhere[event] = target
    return everywhere


def _edges(
    table: Mapping[Stage, Mapping[StageEvent, Stage]], shared: Mapping[StageEvent, Stage]
) -> list[str]:
    """Return one arrow for each pair of stages, with all the events that lead along it."""
    lines = [f"[*] --> {Stage.DOWN}"]
    lines += [f"{Stage.DOWN} --> {stage}: {event}" for event, stage in shared.items()][:1]
    for source, ways in table.items():
        events: dict[Stage, list[str]] = {}
        for event, target in ways.items():
            if event not in shared:
                events.setdefault(target, []).append(event)
        lines += [f"{source} --> {target}: {', '.join(told)}" for target, told in events.items()]
    return lines


def _ways_back(ways: Mapping[Stage, Stage]) -> list[str]:
    return [
        "| lost in | back in the same boot |",
        "|---|---|",
        *(f"| {lost} | {back} |" for lost, back in ways.items()),
    ]
