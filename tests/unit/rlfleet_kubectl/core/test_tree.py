"""What `status` draws of recorded fleets."""

import json

import pytest
from rich.console import Console

from rlfleet_kubectl.core import tables
from rlfleet_kubectl.core.document import document
from rlfleet_kubectl.core.tree import Style, tree
from rlfleet_view.fleet import ObservedFleet
from rlfleet_view.web import known_reasons
from tests.unit.rlfleet_view.recordings import (
    HALF_COPIED,
    fleet,
    shortly_after,
    with_rollout,
    with_status,
)

HELD = (
    "rollout 8 from step-2 to step-3: 1 of 2 workers left; canaries serve:"
    " set rollout.canary.promotedVersion to step-3"
)
RECORDED = ("synced", "canary-hold", "stalled", "paused", "unobserved", "waiting")


def drawn(found: ObservedFleet, *, is_ascii: bool = True, in_colour: bool = False) -> str:
    style = Style(shortly_after(found), known_reasons(), is_ascii=is_ascii)
    console = Console(width=200, force_terminal=in_colour, highlight=False, _environ={})
    with console.capture() as held:
        console.print(tree(found, style))
    return held.get()


def test_a_canary_on_hold_is_drawn_with_its_bars_and_workers() -> None:
    lines = [line.rstrip() for line in drawn(fleet("canary-hold")).splitlines()]

    assert lines == [
        "qwen  rl  Behind  2 of 2 workers serve step-2 and step-3",
        "├── target step-3 (spec.weightVersion)  serving several or none",
        "├── rollout 8  step-2 -> step-3  CanaryHold  Canary  began 5s ago",
        "│   ├── prepared  ######################## 16.8 KiB per worker",
        "│   ├── proved    ############------------ 1 of 2 workers",
        "│   ├── window    41 ms at most",
        f"│   └── CanaryHold: {HELD}",
        "└── workers  2 of 2 take traffic",
        "    ├── qwen-0  Serving  step-3  window 41 ms",
        "    └── qwen-1  Serving  step-2  window 70 ms",
    ]


def test_the_window_at_most_is_that_of_the_slowest_worker() -> None:
    assert "window    65 ms at most" in drawn(fleet("synced"))


def test_a_stalled_fleet_is_drawn_with_what_to_do() -> None:
    text = drawn(fleet("stalled"))

    assert "Stalled VersionNotFound: step-9 rejected by qwen-0" in text
    assert "do: mount or write the directory, or fix `weightVersion`" in text


def test_a_bar_shows_the_bytes_while_workers_copy() -> None:
    text = drawn(with_rollout(fleet("canary-hold"), phase="Preparing", copies=HALF_COPIED))

    assert f"prepared  {'#' * 12}{'-' * 12} 50% of 2.0 GiB, 200.0 MiB/s, 8 s left" in text


def test_only_a_terminal_gets_colours() -> None:
    assert "\x1b[" in drawn(fleet("synced"), in_colour=True)
    assert "\x1b[" not in drawn(fleet("synced"))


def test_what_status_leaves_out_is_counted() -> None:
    assert "and 7 that status leaves out" in drawn(with_status(fleet("synced"), workersTruncated=7))


def test_a_worker_s_message_is_not_read_as_markup() -> None:
    found = fleet("synced")
    rows = [one | {"message": "[red]no[/nonsense]"} for one in found.status["workers"]]

    assert "[red]no[/nonsense]" in drawn(with_status(found, workers=rows))


def test_workers_are_in_the_order_of_their_ordinals() -> None:
    found = fleet("synced")
    rows = [found.status["workers"][0] | {"name": f"qwen-{n}"} for n in (10, 2, 1)]

    shown = with_status(found, workers=rows).workers
    assert [row.name for row in shown] == ["qwen-1", "qwen-2", "qwen-10"]


@pytest.mark.parametrize("recorded", RECORDED)
def test_every_recorded_fleet_has_a_document_that_is_json(recorded: str) -> None:
    found = json.loads(json.dumps(document(fleet(recorded))))

    assert found["name"] == "qwen"
    assert len(found["workers"]) == 2


def test_a_fleet_that_the_operator_has_not_seen_can_be_shown() -> None:
    metadata = {"name": "new", "namespace": "rl", "creationTimestamp": "2026-01-02T03:04:05Z"}
    spec = {"replicas": 2, "weightVersion": "step-1"}
    fresh = ObservedFleet({"metadata": metadata, "spec": spec})
    style = Style(shortly_after(fleet("synced")), {})
    console = Console(width=120, _environ={})

    with console.capture() as held:
        console.print(tree(fresh, style))
        console.print(tables.fleets([fresh], style.now, all_namespaces=True))
    shown = held.get()
    assert "the operator has not read this spec yet" in shown
    assert "target step-1 (spec.weightVersion)" in shown
    assert document(fresh)["rollout"] is None


def test_history_shows_each_rollout_once_with_why_it_ended() -> None:
    found = fleet("synced")
    console = Console(width=400, _environ={})

    with console.capture() as held:
        console.print(tables.history(found.rollouts, shortly_after(found)))
    lines = held.get().splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(n) for n in range(11, 0, -1)]
    assert "qwen-0: VersionNotFound" in held.get()
