"""What the page shows of recorded fleets."""

import json
from typing import Any

import pytest

from rlfleet_view.fleet import ObservedFleet
from rlfleet_view.page import page_of
from rlfleet_view.web import known_reasons
from tests.unit.rlfleet_view.recordings import HALF_COPIED, fleet, with_rollout, with_status

RECORDED = ("synced", "canary-hold", "stalled", "paused", "unobserved", "waiting")


def shown(found: ObservedFleet) -> Any:
    """Return it as the browser gets it."""
    return json.loads(json.dumps(page_of(found, known_reasons())))


def facts(found: ObservedFleet) -> dict[str, str | None]:
    return {fact["name"]: fact["value"] for fact in shown(found)["facts"]}


@pytest.mark.parametrize(
    ("recorded", "state", "tone"),
    [
        ("synced", "Synced", "good"),
        ("canary-hold", "Behind", "busy"),
        ("stalled", "Stalled", "bad"),
        ("paused", "Behind", "busy"),
        ("unobserved", "Behind", "busy"),
    ],
)
def test_a_fleet_has_the_state_that_wait_decides_by(recorded: str, state: str, tone: str) -> None:
    found = shown(fleet(recorded))

    assert (found["key"], found["state"], found["tone"]) == ("rl/qwen", state, tone)


def test_a_stalled_fleet_shows_why_and_what_to_do() -> None:
    [alert] = shown(fleet("stalled"))["alerts"]

    assert (alert["type"], alert["reason"], alert["tone"]) == ("Stalled", "VersionNotFound", "bad")
    assert alert["message"].startswith("step-9 rejected by qwen-0: /weights/step-9 does not exist")
    assert alert["todo"][0].startswith("mount or write the directory")


def test_an_alert_that_is_over_is_not_shown() -> None:
    found = fleet("stalled")
    over = [row | {"status": "False"} for row in found.status["conditions"]]

    assert shown(with_status(found, conditions=over))["alerts"] == []


def test_a_rollout_under_way_has_its_bars_and_its_steps() -> None:
    rollout = shown(fleet("canary-hold"))["rollout"]

    assert (rollout["from"], rollout["to"], rollout["underWay"]) == ("step-2", "step-3", True)
    assert [(bar["name"], bar["done"]) for bar in rollout["bars"]] == [
        ("Prepared", 1.0),
        ("Proved", 0.5),
    ]
    assert [step["name"] for step in rollout["steps"]] == [
        *("prepare", "pause", "flush", "reload", "verify", "resume", "window")
    ]
    assert rollout["now"].startswith("CanaryHold: rollout 8 from step-2 to step-3")


def test_bytes_show_as_a_bar_while_workers_copy() -> None:
    found = with_rollout(fleet("canary-hold"), phase="Preparing", copies=HALF_COPIED)

    assert shown(found)["rollout"]["bars"][0] == {
        "name": "Prepared",
        "done": 0.5,
        "text": "50% of 2.0 GiB, 200.0 MiB/s, 8 s left",
    }


def test_the_windows_are_those_of_rollouts_that_had_one() -> None:
    windows = shown(fleet("stalled"))["windows"]

    assert [(row["id"], row["windowMs"]) for row in windows] == [
        *((8, 88), (7, 60), (5, 32), (2, 53), (1, 46))
    ]


def test_the_newest_window_is_the_median_as_the_earlier_ones_are() -> None:
    found = fleet("synced")
    timings = found.status["rollout"]["timings"]["window"]

    assert timings["medianMs"] < timings["maxMs"]
    assert shown(found)["windows"][0]["windowMs"] == timings["medianMs"]


@pytest.mark.parametrize(
    ("ready", "phase", "tone"),
    [
        (True, "Serving", "good"),
        (False, "Serving", "busy"),
        (False, "Reloading", "busy"),
        (False, "Quarantined", "bad"),
    ],
)
def test_a_worker_s_colour_is_its_phase_s(ready: bool, phase: str, tone: str) -> None:  # noqa: FBT001
    found = fleet("synced")
    row = found.status["workers"][0] | {"ready": ready, "phase": phase}

    assert shown(with_status(found, workers=[row]))["workers"][0]["tone"] == tone


def test_a_figure_that_status_lacks_is_no_number() -> None:
    metadata = {"name": "new", "namespace": "rl", "creationTimestamp": "2026-01-02T03:04:05Z"}
    found = shown(ObservedFleet({"metadata": metadata, "spec": {"replicas": 2}}))

    assert (found["rollout"], found["windows"], found["workers"]) == (None, [], [])
    assert {fact["name"]: fact["value"] for fact in found["facts"]} == {
        "Target": None,
        "Serving": None,
        "In traffic": "0 of 2",
        "Proved": "0 of 2",
    }


def test_a_fleet_that_follows_shows_the_newest_version_of_the_store() -> None:
    found = with_status(fleet("synced"), latest={"version": "step-12"})

    assert facts(found)["Newest in the store"] == "step-12"


def test_a_condition_of_an_earlier_spec_is_marked() -> None:
    rows = shown(fleet("unobserved"))["conditions"]

    assert {row["current"] for row in rows} == {False}


@pytest.mark.parametrize("recorded", RECORDED)
def test_every_recorded_fleet_can_be_shown(recorded: str) -> None:
    assert len(shown(fleet(recorded))["workers"]) == 2
