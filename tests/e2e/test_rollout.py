"""Weight changes on real vLLM: aborted, taken back, superseded, rolled back."""

import pytest

from dev.shell import Shell
from tests.e2e.scenario import LONG, Fleet, Trainer
from tests.patience import stalls

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


def test_abort_ends_requests_with_a_marker_and_loses_none_silently(fleet: Fleet) -> None:
    # All go to one worker, so that it has some whenever it pauses, and begin one after the
    # other: those that begin together end together. An engine that comes to its pause late may
    # have answered them all: such a change shows nothing, and is made again.
    aborted = False
    for version in ("step-1", "step-0") * 3:
        with fleet.recorded(LONG, clients=6, stagger_s=1, worker="qwen-0") as histories:
            fleet.declare(version, rollout={"pauseMode": "Abort"})
            fleet.wait_synced()
        history = histories[0]

        assert not history.lost, history.lost[:3]
        assert {reply.finish for reply in history.replies} <= {"length", "abort"}
        aborted = bool(history.aborted)
        if aborted:
            break
    assert aborted


@pytest.mark.release
def test_there_and_back_are_two_rollouts_and_give_the_old_answers_again(fleet: Fleet) -> None:
    before, first = fleet.answers(), fleet.status()["rollout"]["id"]

    fleet.declare("step-1")
    fleet.wait_synced()
    between = fleet.answers()
    fleet.declare("step-0")
    status = fleet.wait_synced()

    assert len({tuple(tokens) for tokens in between.values()}) == 1
    assert between != before
    assert fleet.answers() == before
    assert status["rollout"]["id"] == first + 2
    past = [(one["id"], one["to"], one["result"]) for one in status["history"][:2]]
    assert past == [(first + 1, "step-1", "Completed"), (first, "step-0", "Completed")]


def test_twenty_patches_in_five_seconds_end_at_the_last_with_two_commits_at_most(
    fleet: Fleet,
) -> None:
    before = fleet.reloads()
    versions = [f"step-{1 + patch % 3}" for patch in range(19)] + ["step-3"]
    moments = fleet.patch_quickly(versions, within_s=5)

    status = fleet.wait_synced()
    after = fleet.reloads()

    assert status["serving"] == "step-3"
    commits = {worker: after[worker] - count for worker, count in before.items()}
    # A version that stays the newest for that long may be taken up.
    assert max(commits.values()) <= 2 + stalls(moments, longer_than_s=2), commits


@pytest.mark.release
def test_an_engine_starts_with_what_its_image_knows_of_all_models(
    fleet: Fleet, shell: Shell
) -> None:
    (name, *_) = fleet.pods()
    listed = ("ls", "/tmp/.cache/vllm/modelinfos")  # noqa: S108 - the pod's own
    answers = shell.kubectl("exec", name, "--container=engine", "--", *listed).split()

    # vLLM asks of the model that it serves alone.
    assert len(answers) > 100


OVERFLOWING = """
import json, struct
raw = bytearray(f.read_bytes())
length = struct.unpack('<Q', raw[:8])[0]
begin, end = json.loads(raw[8:8 + length])['lm_head.weight']['data_offsets']
# The largest number that bfloat16 has: each weight is finite, no logit is.
raw[8 + length + begin:8 + length + end] = bytes([0x7f, 0x7f]) * ((end - begin) // 2)
f.write_bytes(raw)
"""


@pytest.mark.release
def test_a_version_that_fails_its_proof_is_rolled_back(fleet: Fleet, trainer: Trainer) -> None:
    trainer.write("overflow", "step-1", OVERFLOWING)
    answers = fleet.answers()

    with fleet.recorded() as histories:
        fleet.declare("overflow", rollout={"onFailure": "Rollback"})
        status = fleet.wait_phase("RolledBack")
        stalled = fleet.wait_stalled()

    assert stalled["reason"] == "RolledBack"
    assert "ProofFailed" in stalled["message"]
    assert (status["serving"], status["readyReplicas"]) == ("step-0", 2)
    failed = status["history"][0]
    assert (failed["to"], failed["result"]) == ("overflow", "Failed")
    assert (status["rollout"]["from"], status["rollout"]["to"]) == ("overflow", "step-0")
    # What the engine in doubt had begun to answer was ended with a marker; it was sent again.
    assert not histories[0].lost
    assert not histories[0].unfinished
    assert {r.versions[-1] for r in histories[0].replies if r.finish == "length"} == {"step-0"}
    assert fleet.answers() == answers
    fleet.wait_for_events("RollbackStarted", "RolledBack")
