"""Which fields each command writes, and what it rejects."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfleet_kubectl.core import changes
from rlfleet_kubectl.core.changes import Described, SpecChange
from rlfleet_kubectl.errors import PluginError
from tests.unit.rlfleet_view.recordings import fleet, with_deletion, with_rollout, with_status

ROOT = Path(__file__).resolve().parents[4]
NOTHING = Described()
EVERY = Described(step=9, run_id="run", digest="sha256:ab", allows_rewind=True)
CANARY = {"strategy": "Canary", "canary": {"promote": "Manual"}}


def test_a_version_is_set_with_what_describes_it() -> None:
    change = changes.set_version(fleet("synced"), "step-9", EVERY)

    assert change.fields == {
        "weightVersion": "step-9",
        "weights.step": 9,
        "weights.digest": "sha256:ab",
        "weights.runId": "run",
        "rollout.allowRewind": True,
    }


@pytest.mark.parametrize(
    ("field", "said"),
    [("digest", Described(digest="")), ("step", Described(step=-1))],
)
def test_what_describes_another_version_does_not_stay(field: str, said: Described) -> None:
    found = fleet("synced", weights={field: 7})

    with pytest.raises(PluginError, match=rf"spec\.weights\.{field} is 7, of another version"):
        changes.set_version(found, "step-9", NOTHING)
    assert changes.set_version(found, "step-9", said).fields[f"weights.{field}"] is None


def test_a_pinned_fleet_is_said_to_follow_no_longer() -> None:
    follows = fleet("synced", weights={"follow": "Latest"}, weightVersion=None)

    (note,) = changes.set_version(follows, "step-9", NOTHING).notes
    assert "no longer follows" in note
    assert changes.set_version(fleet("synced"), "step-9", NOTHING).notes == ()


def test_to_unset_the_version_removes_what_describes_it() -> None:
    found = fleet("synced", weights={"digest": "sha256:ab", "follow": "Latest"})

    change = changes.unset_version(found)
    assert change.fields == {"weightVersion": None, "weights.digest": None}
    with pytest.raises(PluginError, match="nothing to unset"):
        changes.unset_version(fleet("synced", weightVersion=None))


def test_pause_and_resume_write_one_field_if_it_is_not_so_already() -> None:
    paused = fleet("paused", rollout={"paused": True})

    assert changes.pause(fleet("synced"), is_paused=True) == SpecChange({"rollout.paused": True})
    assert changes.pause(paused, is_paused=False) == SpecChange({"rollout.paused": False})
    assert changes.pause(paused, is_paused=True) is None


def test_resume_names_the_pause_of_a_trainer_which_it_cannot_end() -> None:
    found = fleet("synced")
    condition = found.status["conditions"][0] | {"type": "Paused", "reason": "PausedByTrainer"}
    found = with_status(found, conditions=[condition])

    with pytest.raises(PluginError, match="a trainer still pauses the fleet"):
        changes.pause(found, is_paused=False)


def test_a_retry_needs_a_target_and_a_new_id() -> None:
    assert changes.retry(fleet("stalled"), "2").fields == {"rollout.restartId": "2"}
    with pytest.raises(PluginError, match="use another --id"):
        changes.retry(fleet("stalled", rollout={"restartId": "2"}), "2")
    with pytest.raises(PluginError, match="no target"):
        changes.retry(with_status(fleet("stalled"), target=""), "2")


@pytest.mark.parametrize(
    "reason", ["ObjectRefused", "InvalidObject", "InternalError", "StepRewound", "StaleTarget"]
)
def test_a_retry_is_rejected_where_another_rollout_mends_nothing(reason: str) -> None:
    found = fleet("stalled")
    others = [one for one in found.status["conditions"] if one["type"] != "Stalled"]
    (stalled,) = (one for one in found.status["conditions"] if one["type"] == "Stalled")
    told = [*others, stalled | {"reason": reason, "message": "request a later version"}]

    with pytest.raises(PluginError, match=f"{reason}: request a later version; see kubectl rlf"):
        changes.retry(with_status(found, conditions=told), "2")
    old = [*others, stalled | {"reason": reason, "observedGeneration": 0}]
    assert changes.retry(with_status(found, conditions=old), "2").fields


def test_abort_returns_to_the_version_before_the_rollout_under_way() -> None:
    assert changes.abort(fleet("stalled"), NOTHING).fields == {"weightVersion": "step-3"}
    with pytest.raises(PluginError, match="rollout 11 is Completed"):
        changes.abort(fleet("synced"), NOTHING)
    with pytest.raises(PluginError, match="no version before it"):
        changes.abort(with_rollout(fleet("stalled"), **{"from": ""}), NOTHING)


def test_abort_does_not_write_the_version_that_a_rollback_leaves() -> None:
    back = {"reason": "Rollback", "from": "step-9", "to": "step-3"}
    with pytest.raises(PluginError, match=r"goes back to step-3 already, because step-9 failed"):
        changes.abort(with_rollout(fleet("stalled"), **back), NOTHING)


def test_rollback_returns_to_the_last_completed_rollout_of_another_version() -> None:
    assert changes.rollback(fleet("synced"), None, NOTHING).fields == {"weightVersion": "step-3"}
    assert changes.rollback(fleet("synced"), 7, NOTHING).fields == {"weightVersion": "step-2"}


def test_rollback_rejects_a_rollout_that_did_not_complete() -> None:
    with pytest.raises(PluginError, match="rollout 9 is not among the completed ones"):
        changes.rollback(fleet("synced"), 9, NOTHING)
    alone = with_status(fleet("synced"), history=[])
    with pytest.raises(PluginError, match="name one: kubectl rlf set-version qwen VERSION"):
        changes.rollback(alone, None, NOTHING)


def test_rollback_takes_the_step_of_the_version_from_the_history() -> None:
    found = fleet("synced", weights={"step": 1})
    past = [one | {"step": 3 if one["to"] == "step-3" else 2} for one in found.status["history"]]

    change = changes.rollback(with_status(found, history=past), None, NOTHING)
    assert change.fields == {"weightVersion": "step-3", "weights.step": 3}


def test_promote_names_the_version_of_the_rollout_under_way() -> None:
    held = fleet("canary-hold", rollout=CANARY)

    change = changes.promote(held)
    assert change == SpecChange({"rollout.canary.promotedVersion": "step-3"})
    early = changes.promote(with_rollout(held, phase="Preparing"))
    assert early.notes == ("the canaries do not serve it yet",)


@pytest.mark.parametrize(
    ("recorded", "rollout", "why"),
    [
        ("canary-hold", {"strategy": "Rolling"}, "got Rolling and Auto"),
        ("canary-hold", {"strategy": "Canary"}, "got Canary and Auto"),
        ("synced", CANARY, "no rollout to promote"),
        (
            "canary-hold",
            {"strategy": "Canary", "canary": {"promote": "Manual", "promotedVersion": "step-3"}},
            "promoted already",
        ),
    ],
)
def test_promote_is_for_held_canaries(recorded: str, rollout: dict[str, Any], why: str) -> None:
    with pytest.raises(PluginError, match=why):
        changes.promote(fleet(recorded, rollout=rollout))


def test_a_patch_holds_only_for_the_spec_that_was_read() -> None:
    found = fleet("synced")

    first, *_ = changes.operations(found, SpecChange({"weightVersion": "step-9"}))
    assert first == {"op": "test", "path": "/metadata/generation", "value": found.generation}


def test_a_patch_makes_missing_objects_and_removes_what_is_there() -> None:
    found = fleet("synced", weightVersion="step-1", weights=None, rollout={"paused": True})
    change = SpecChange({"weightVersion": None, "weights.step": 1, "weights.runId": "a"})

    assert changes.operations(found, change)[1:] == [
        {"op": "remove", "path": "/spec/weightVersion"},
        {"op": "add", "path": "/spec/weights", "value": {}},
        {"op": "add", "path": "/spec/weights/step", "value": 1},
        {"op": "add", "path": "/spec/weights/runId", "value": "a"},
    ]
    absent = SpecChange({"weights.digest": None})
    assert [one["op"] for one in changes.operations(fleet("synced"), absent)] == ["test"]


def test_what_was_patched_is_shown_field_by_field() -> None:
    change = SpecChange({"weightVersion": "step-9", "rollout.paused": True, "weights.step": None})
    found = fleet("synced", weights={"step": 1})

    assert changes.lines(found, change) == [
        "spec.weightVersion: step-1 -> step-9",
        "spec.rollout.paused: false -> true",
        "spec.weights.step: 1 -> none",
    ]


def test_an_abort_that_was_asked_for_before_changes_nothing() -> None:
    again = fleet("stalled", weightVersion="step-3")
    first = fleet("stalled")

    assert not changes.is_made(first, changes.abort(first, NOTHING))
    assert changes.is_made(again, changes.abort(again, NOTHING))
    assert not changes.is_made(again, SpecChange({"weightVersion": "step-3", "weights.step": 1}))


def test_a_fleet_that_is_being_deleted_is_not_changed() -> None:
    found = with_deletion(fleet("synced"))

    with pytest.raises(PluginError, match="qwen was not changed: deleted at 2026-11-25T02:00:00Z"):
        changes.operations(found, SpecChange({"weightVersion": "step-9"}))


def test_every_field_that_a_command_writes_is_in_the_definition() -> None:
    text = (ROOT / "crds" / "rlinferencefleets.rlfleet.dev.yaml").read_text()
    version = yaml.safe_load(text)["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    held = fleet("canary-hold", rollout=CANARY)
    every = [
        changes.set_version(held, "step-9", EVERY),
        changes.retry(held, "2"),
        changes.promote(held),
        changes.pause(held, is_paused=True),
    ]

    written = {path for change in every if change for path in change.fields}
    assert len(written) == 8
    assert [path for path in written if not is_defined(spec, path.split("."))] == []


def is_defined(schema: dict[str, Any], path: list[str]) -> bool:
    for part in path:
        schema = schema.get("properties", {}).get(part)
        if schema is None:
            return False
    return True
