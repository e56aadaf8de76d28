"""The buttons of the dashboard, by the state of the fleet."""

import pytest

from rlfleet_kubectl.core import page_actions
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet
from tests.unit.rlfleet_view.recordings import fleet, with_deletion

NOW = "2026-01-02T03:04:05Z"


def buttons(found: ObservedFleet) -> list[str]:
    return [button["name"] for button in page_actions.actions(found, NOW)]


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("synced", ["set-version", "pause", "retry", "rollback"]),
        ("canary-hold", ["set-version", "promote", "pause", "retry", "rollback", "abort"]),
        ("stalled", ["set-version", "pause", "retry", "rollback", "abort"]),
        ("paused", ["set-version", "resume", "retry", "rollback", "abort"]),
    ],
)
def test_only_buttons_that_fit_are_shown(recorded: str, expected: list[str]) -> None:
    assert buttons(fleet(recorded)) == expected


def test_a_fleet_that_had_no_rollout_can_be_given_a_version() -> None:
    metadata = {"name": "new", "namespace": "rl"}

    assert buttons(ObservedFleet({"metadata": metadata, "spec": {}})) == ["set-version", "pause"]


def test_a_fleet_that_is_being_deleted_has_no_buttons() -> None:
    assert buttons(with_deletion(fleet("stalled"))) == []


@pytest.mark.parametrize(
    ("weights", "asked"),
    [
        ({}, ["version"]),
        ({"step": 3}, ["version", "step"]),
        ({"digest": "sha256:1", "runId": "a"}, ["version", "digest", "runId"]),
    ],
)
def test_what_describes_a_version_is_asked_for_where_the_spec_has_it(
    weights: dict[str, object], asked: list[str]
) -> None:
    button = page_actions.actions(fleet("synced", weights=weights), NOW)[0]

    assert [field["name"] for field in button["fields"]] == asked


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("set-version", {"version": "step-4"}, {"weightVersion": "step-4"}),
        (
            "set-version",
            {"version": "step-4", "step": "4", "digest": "none"},
            {"weightVersion": "step-4", "weights.step": 4, "weights.digest": None},
        ),
        ("pause", {}, {"rollout.paused": True}),
        ("retry", {}, {"rollout.restartId": NOW}),
        ("promote", {}, {"rollout.canary.promotedVersion": "step-3"}),
        ("abort", {}, {"weightVersion": "step-2"}),
        ("rollback", {}, {"weightVersion": "step-2"}),
    ],
)
def test_a_button_changes_what_its_command_changes(
    name: str, fields: dict[str, str], expected: dict[str, object]
) -> None:
    change = page_actions.change(fleet("canary-hold"), name, fields, NOW)

    assert change is not None
    assert change.fields == expected


@pytest.mark.parametrize(
    ("name", "fields"), [("abort", {}), ("set-version", {"version": "step-2"})]
)
def test_a_spec_that_is_so_already_has_no_change(name: str, fields: dict[str, str]) -> None:
    found = fleet("canary-hold", weightVersion="step-2")

    assert page_actions.change(found, name, fields, NOW) is None
    assert "abort" not in buttons(found)
    assert "set-version" in buttons(found)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("delete", {}, "no action 'delete'"),
        ("set-version", {}, "no version named"),
        ("set-version", {"version": "a", "step": "-1"}, "'-1' is no step"),
        ("set-version", {"version": "a", "step": "²"}, "'²' is no step"),
    ],
)
def test_what_makes_no_change_is_rejected(name: str, fields: dict[str, str], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        page_actions.change(fleet("synced"), name, fields, NOW)
