"""Argo CD's health and actions of recorded fleets, by Lua 5.1 without its string library."""

import json
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaError

from dev.docs import argocd, reasons
from rlfleet_kubectl.core import changes
from rlfleet_kubectl.core.changes import Described, SpecChange
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet
from tests import lua51, recordings
from tests.recordings import VERDICTS

Raw = dict[str, Any]
NOTHING = Described()
STALLED = [one["name"] for one in json.loads(reasons.as_json()) if one["of"] == "Stalled"]
CONFIG = yaml.safe_load(argocd.as_yaml())["data"]
ACTIONS = yaml.safe_load(CONFIG[f"resource.customizations.actions.{argocd.KEY}"])
SCRIPTS = {one["name"]: one["action.lua"] for one in ACTIONS["definitions"]}


def health(raw: Raw) -> tuple[str, str]:
    found = lua51.run(CONFIG[f"resource.customizations.health.{argocd.KEY}"], raw)
    return found["status"], found["message"]


def offered(raw: Raw) -> list[str]:
    found = lua51.run(ACTIONS["discovery.lua"], raw)
    return sorted(name for name, about in found.items() if not about["disabled"])


def by_plugin(name: str, raw: Raw) -> SpecChange | None:
    """Return what `kubectl rlf` changes."""
    seen = ObservedFleet(raw)
    match name:
        case "pause" | "resume":
            return changes.pause(seen, is_paused=name == "pause")
        case "retry":
            return changes.retry(seen, f"after-rollout-{raw['status']['rollout']['id']}")
        case "abort":
            return changes.abort(seen, NOTHING)
        case "promote":
            return changes.promote(seen)
        case "rollback":
            return changes.rollback(seen, None, NOTHING)
        case _:
            return changes.unset_version(seen)


def with_fields(raw: Raw, fields: Raw) -> Raw:
    """Return the object after the plugin's change."""
    patch: Raw = {}
    for path, value in fields.items():
        *parents, last = path.split(".")
        at = patch
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    made: Raw = recordings.merged(raw, {"spec": patch})
    return made


def without_empty(value: Any) -> Any:
    """Leave out what Lua cannot tell apart: an empty list and an empty object."""
    if isinstance(value, dict):
        return {key: without_empty(one) for key, one in value.items() if one not in ({}, [])}
    return [without_empty(one) for one in value] if isinstance(value, list) else value


def test_there_are_thirty_recordings_each_with_a_verdict() -> None:
    assert len(recordings.NAMES) >= 30
    assert sorted(VERDICTS) == recordings.NAMES
    assert {one["health"] for one in VERDICTS.values()} == {
        "Healthy",
        "Progressing",
        "Degraded",
        "Suspended",
    }
    assert {name for one in VERDICTS.values() for name in one["actions"]} == set(argocd.ACTIONS)


@pytest.mark.parametrize("name", recordings.NAMES)
def test_a_fleet_has_the_health_that_its_state_deserves(name: str) -> None:
    expected = VERDICTS[name]

    assert health(recordings.fleet(name)) == (expected["health"], expected["says"])


@pytest.mark.parametrize("name", recordings.NAMES)
def test_the_actions_that_make_sense_are_enabled(name: str) -> None:
    assert offered(recordings.fleet(name)) == VERDICTS[name]["actions"]


@pytest.mark.parametrize("name", recordings.NAMES)
def test_an_action_changes_what_the_plugin_changes(name: str) -> None:
    raw = recordings.fleet(name)
    for action in VERDICTS[name]["actions"]:
        change = by_plugin(action, raw)
        assert change is not None
        expected = with_fields(raw, change.fields)
        assert expected["spec"] != raw["spec"]
        assert without_empty(lua51.run(SCRIPTS[action], raw)) == without_empty(expected)


@pytest.mark.parametrize("name", recordings.NAMES)
def test_an_action_that_makes_no_sense_says_why_and_returns_nothing(name: str) -> None:
    raw = recordings.fleet(name)
    if "deletionTimestamp" in raw["metadata"]:
        return
    for action in set(argocd.ACTIONS) - set(VERDICTS[name]["actions"]):
        with pytest.raises(LuaError, match=r"^[a-z][^\n]+$"):
            lua51.run(SCRIPTS[action], raw)


def test_no_string_library_is_there() -> None:
    for script in ("return string", "return io", "return os"):
        assert lua51.run(script, {}) is None
    with pytest.raises(LuaError):
        lua51.run("return ('a'):upper()", {})


@pytest.mark.parametrize(
    ("weights", "rollout", "expected"),
    [
        ({"digest": "sha256:ab"}, {}, None),
        ({"step": 2}, {}, None),
        ({"step": 2}, {"allowRewind": True}, {"weightVersion": "step-1", "step": 1}),
        ({"step": 1}, {}, {"weightVersion": "step-1", "step": 1}),
    ],
    ids=["a digest", "a step that goes back", "allowed to go back", "the same step"],
)
def test_the_way_back_keeps_what_describes_the_version_right(
    weights: Raw, rollout: Raw, expected: Raw | None
) -> None:
    raw = recordings.merged(
        recordings.fleet("completed"), {"spec": {"weights": weights, "rollout": rollout}}
    )
    for past in raw["status"]["history"]:
        past["step"] = 1

    assert ("rollback" in offered(raw)) is (expected is not None)
    if expected is None:
        return
    after = lua51.run(SCRIPTS["rollback"], raw)["spec"]
    change = changes.rollback(ObservedFleet(raw), None, NOTHING)
    assert {"weightVersion": after["weightVersion"], "step": after["weights"]["step"]} == expected
    assert change.fields == {"weightVersion": "step-1", "weights.step": 1}


def test_a_step_that_is_not_recorded_leaves_no_way_back() -> None:
    raw = recordings.merged(recordings.fleet("completed"), {"spec": {"weights": {"step": 2}}})

    assert "rollback" not in offered(raw)
    with pytest.raises(PluginError):
        changes.rollback(ObservedFleet(raw), None, NOTHING)


def test_to_follow_again_removes_what_describes_the_pinned_version() -> None:
    raw = recordings.merged(
        recordings.fleet("pinned"), {"spec": {"weights": {"step": 4, "runId": "run-1"}}}
    )

    after = lua51.run(SCRIPTS["follow"], raw)["spec"]
    assert "weightVersion" not in after
    assert "step" not in after["weights"]
    assert after["weights"]["runId"] == "run-1"


@pytest.mark.parametrize("reason", STALLED)
def test_a_rollout_is_retried_only_if_another_one_can_mend_it(reason: str) -> None:
    raw = recordings.fleet("failed")
    (stalled,) = (one for one in raw["status"]["conditions"] if one["type"] == "Stalled")
    stalled["reason"] = reason

    assert health(raw) == ("Degraded", f"{reason}: {stalled['message']}")
    assert ("retry" in offered(raw)) == _is_retried_by_plugin(raw)


def _is_retried_by_plugin(raw: Raw) -> bool:
    try:
        return by_plugin("retry", raw) is not None
    except PluginError:
        return False


def test_conditions_of_an_earlier_spec_count_no_longer() -> None:
    raw = recordings.fleet("failed")
    raw["metadata"]["generation"] += 1
    raw["status"]["observedGeneration"] += 1

    assert health(raw)[0] == "Progressing"
