"""Weight changes on real vLLM: under load, superseded, scaled, refused."""

import pytest

from tests.e2e.scenario import Fleet, Trainer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.mark.parametrize("mode", ["Keep", "Wait"])
def test_a_change_under_load_loses_no_request_and_restarts_no_pod(fleet: Fleet, mode: str) -> None:
    before, pods = fleet.answers(), fleet.identities()

    with fleet.under_load() as tallies:
        fleet.declare("step-1", rollout={"pauseMode": mode})
        status = fleet.wait_synced()
    after = fleet.answers()

    assert tallies[0].lost == 0, tallies
    assert set(tallies[0].finished) == {"length"}
    assert status["serving"] == "step-1"
    assert len({tuple(tokens) for tokens in after.values()}) == 1
    assert after != before
    assert fleet.identities() == pods


def test_abort_ends_requests_with_a_marker_and_loses_none_silently(fleet: Fleet) -> None:
    with fleet.under_load(tokens=400) as tallies:
        fleet.declare("step-1", rollout={"pauseMode": "Abort"})
        fleet.wait_synced()

    assert tallies[0].lost == 0, tallies
    assert tallies[0].finished.get("abort", 0) > 0
    assert set(tallies[0].finished) <= {"length", "abort"}


def test_going_back_gives_the_old_answers_again(fleet: Fleet) -> None:
    before = fleet.answers()
    fleet.declare("step-1")
    fleet.wait_synced()

    fleet.declare("step-0")
    fleet.wait_synced()

    assert fleet.answers() == before


def test_the_newest_of_several_patches_wins(fleet: Fleet) -> None:
    for version in ("step-1", "step-2", "step-3"):
        fleet.declare(version)

    status = fleet.wait_synced()

    assert status["serving"] == "step-3"


BAD = {
    "no marker": ("(d / 'STABLE').unlink()", "CheckpointIncomplete", "STABLE"),
    "truncated": (
        "os.truncate(f, f.stat().st_size // 2)",
        "CheckpointInvalid",
        "model.safetensors",
    ),
    "unreadable": ("os.chmod(f, 0)", "CheckpointUnreadable", "chmod"),
    "a pickle": ("(d / 'pytorch_model.bin').write_bytes(b'x')", "CheckpointInvalid", ".bin"),
    "a link out": ("f.unlink(); f.symlink_to('/etc/passwd')", "PathRefused", "model.safetensors"),
}


@pytest.mark.parametrize(("spoil", "reason", "words"), BAD.values(), ids=BAD)
def test_a_bad_checkpoint_is_named_and_serving_goes_on(
    fleet: Fleet, trainer: Trainer, spoil: str, reason: str, words: str
) -> None:
    trainer.write("bad", "step-1", spoil)
    before, answers = fleet.status(), fleet.answers()

    with fleet.under_load() as tallies:
        fleet.declare("bad")
        stalled = fleet.wait_stalled()
    after = fleet.status()

    assert stalled["reason"] == reason
    assert words in stalled["message"]
    assert tallies[0].lost == 0
    assert after["serving"] == "step-0"
    assert fleet.answers() == answers
    assert [w["windowMs"] for w in after["workers"]] == [w["windowMs"] for w in before["workers"]]
    assert reason in fleet.reasons()


def test_a_version_that_does_not_exist_is_said_to_be_missing(fleet: Fleet) -> None:
    fleet.declare("step-99")

    stalled = fleet.wait_stalled()

    assert stalled["reason"] == "VersionNotFound"
    assert "step-99" in stalled["message"]
    assert fleet.status()["readyReplicas"] == 2
