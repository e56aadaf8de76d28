"""Which layers a proof shows, and that no lie about weights gets past all of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.subject import Subject
from tests.fakes.checkpoints import write_manifest, write_neighbour, write_version
from tests.fakes.memory import consume, stamps_of
from tests.fakes.worker import Worker

NEXT = "step-1-next"
OWN = {Evidence.INSTALLED, Evidence.PARAMETERS, Evidence.PROBE}
STAYED: dict[str, dict[str, Any]] = {
    "quietly": {},
    "with noise in its answers": {"noise": 0.05},
    "and its memory cannot be read": {"memory_unread": True},
}


@pytest.fixture(autouse=True)
def neighbour(weights: Path) -> Path:
    """Make a version whose greedy tokens are those of the first."""
    return write_neighbour(weights, NEXT, seed=1)


def shown(report: WorkerReport) -> Proof:
    assert report.proof is not None
    return report.proof


async def behave(fake: Worker, **lie: Any) -> None:
    fake.engine.behaviour = replace(fake.engine.behaviour, **lie)


async def restart(fake: Worker, subject: Subject) -> None:
    """Restart the engine, and wait until it is calibrated."""
    before = (await subject.report()).boot
    await fake.restart_engine()
    await subject.until(lambda report: report.boot not in {None, before})


async def test_a_sound_engine_shows_its_memory_and_its_answers(subject: Subject) -> None:
    base = shown(await subject.serve(paths.BASE_VERSION))
    first = shown(await subject.serve(subject.versions.first))

    assert base.verified_by == (Evidence.PROBE,)
    assert set(first.verified_by) >= OWN
    assert Evidence.PEERS not in first.verified_by
    assert (first.version, first.boot) == (subject.versions.first, base.boot)
    assert first.parameters != base.parameters
    # A worker of a release with SHA-256, whose peer this is, would compare that field.
    assert (base.checkpoint, first.checkpoint) == (None, None)
    assert (first.tensors or "").startswith("blake3:")


async def test_a_proof_is_one_request_which_the_engine_has_before_it_resumes(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    queued, answered = fake.engine.queued, len(fake.engine.served)

    await subject.serve(subject.versions.second)

    assert (fake.engine.queued, len(fake.engine.served)) == (queued + 1, answered + 1)


async def test_an_engine_whose_second_computation_differs_is_caught(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await behave(fake, noise=0.5)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)

    problem = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second
    )

    assert "two answers to the same probe differ by" in problem.message


async def test_weights_with_the_same_tokens_are_distinguished(subject: Subject) -> None:
    first = shown(await subject.serve(subject.versions.first))
    second = shown(await subject.serve(NEXT))

    assert first.tokens == second.tokens
    assert first.logprobs != second.logprobs
    assert first.parameters != second.parameters
    assert set(second.verified_by) >= OWN


async def test_a_worker_like_its_peer_shows_all_that_it_can(subject: Subject) -> None:
    peer = shown(await subject.serve(NEXT))
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, NEXT)

    report = await subject.ok(
        paths.UPDATE_WEIGHTS_PATH, NEXT, expected=peer.model_dump(mode="json")
    )

    assert set(shown(report).verified_by) >= OWN | {Evidence.PEERS}


@pytest.mark.parametrize("lie", STAYED.values(), ids=STAYED)
async def test_the_first_worker_that_keeps_its_old_weights_is_caught_between_neighbours(
    fake: Worker, subject: Subject, lie: dict[str, Any]
) -> None:
    await behave(fake, **lie)
    await restart(fake, subject)
    await subject.serve(subject.versions.first)
    await behave(fake, reload_keeps_old=True)
    await subject.ok(paths.PREPARE_PATH, NEXT)

    problem = await subject.refused(Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, NEXT)

    assert "kept old weights" in problem.message
    report = await subject.report()
    assert (report.stage, report.proved, report.proof) == (Stage.DOUBT, None, None)
    await behave(fake, reload_keeps_old=False)
    assert shown(await subject.serve(NEXT)).version == NEXT


async def test_an_engine_that_keeps_what_it_booted_with_is_caught_at_once(
    fake: Worker, subject: Subject
) -> None:
    await behave(fake, reload_keeps_old=True)
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)

    problem = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.first
    )

    assert "model.norm.weight" in problem.message or "lm_head.weight" in problem.message


async def test_a_later_worker_that_keeps_what_it_booted_with_is_unlike_its_peer(
    fake: Worker, subject: Subject
) -> None:
    """Its memory cannot be read and nothing was proved before: only its answers show it."""
    peer = shown(await subject.serve(NEXT)).model_copy(update={"parameters": ()})
    await behave(fake, memory_unread=True)
    await restart(fake, subject)
    await behave(fake, reload_keeps_old=True)
    await subject.ok(paths.PREPARE_PATH, NEXT)

    await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, NEXT, expected=peer.model_dump(mode="json")
    )

    assert (await subject.report()).stage is Stage.DOUBT


async def test_another_memory_than_the_peers_is_caught_though_the_answers_are_alike(
    subject: Subject,
) -> None:
    peer = shown(await subject.serve(subject.versions.first))
    other = peer.model_copy(update={"parameters": ("another",)})
    await subject.serve(NEXT)
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)

    problem = await subject.refused(
        Code.PROOF_FAILED,
        paths.UPDATE_WEIGHTS_PATH,
        subject.versions.first,
        expected=other.model_dump(mode="json"),
    )

    assert "memory" in problem.message


async def test_a_version_written_again_after_a_peer_proved_it_is_rejected_before_the_pause(
    fake: Worker, subject: Subject, weights: Path
) -> None:
    peer = shown(await subject.serve(NEXT))
    await subject.serve(subject.versions.first)
    write_version(weights, NEXT, seed=99)
    await subject.ok(paths.PREPARE_PATH, NEXT)
    pauses = fake.engine.pauses

    problem = await subject.refused(
        Code.CHECKPOINT_INVALID,
        paths.UPDATE_WEIGHTS_PATH,
        NEXT,
        expected=peer.model_dump(mode="json"),
    )

    assert "was written again after its proof" in problem.message
    report = await subject.report()
    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.first)
    assert (report.refusal, fake.engine.pauses) == (problem, pauses)


async def test_an_engine_that_consumed_other_bytes_is_caught(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(subject.versions.first)
    await behave(fake, reload_spoils_bytes=True)
    await subject.ok(paths.PREPARE_PATH, NEXT)

    problem = await subject.refused(Code.RELOAD_FAILED, paths.UPDATE_WEIGHTS_PATH, NEXT)

    assert "other bytes" in problem.message
    assert (await subject.report()).stage is Stage.DOUBT


@pytest.mark.parametrize("is_readable", [True, False])
async def test_an_older_extension_reads_memory_within_the_reload(
    fake: Worker,
    subject: Subject,
    is_readable: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    await behave(fake, reads_at_once=True, memory_unread=not is_readable)

    proof = shown(await subject.serve(subject.versions.first))

    assert (Evidence.PARAMETERS in proof.verified_by) is is_readable
    assert bool(proof.parameters) is is_readable


async def test_what_cannot_be_read_is_not_claimed(fake: Worker, subject: Subject) -> None:
    await behave(fake, memory_unread=True)
    await restart(fake, subject)

    proof = shown(await subject.serve(subject.versions.first))

    assert Evidence.PARAMETERS not in proof.verified_by
    assert proof.parameters == ()


async def test_memory_that_was_not_read_is_reported_as_a_share(
    fake: Worker, subject: Subject
) -> None:
    await behave(fake, memory_sizes=(1000, 238))

    proof = shown(await subject.serve(subject.versions.first))

    assert Evidence.PARAMETERS in proof.verified_by
    assert proof.read_share == pytest.approx(0.762)


async def test_an_engine_in_company_that_answers_a_little_otherwise_is_put_up_with(
    fake: Worker, subject: Subject
) -> None:
    await behave(fake, noise=0.05)
    await restart(fake, subject)

    proof = shown(await subject.serve(subject.versions.first))

    assert 0.05 <= proof.tolerance < 0.5
    assert set(proof.verified_by) >= OWN


async def test_the_measure_of_an_engine_outlives_the_sidecar(
    fake: Worker, subject: Subject
) -> None:
    await behave(fake, noise=0.05)
    await restart(fake, subject)
    before = shown(await subject.serve(subject.versions.first))

    await fake.stop_sidecar()
    await fake.start_sidecar()
    await subject.until(lambda report: report.stage is Stage.OPEN)

    after = shown(await subject.serve(NEXT))
    assert (after.tolerance, len(after.logprobs)) == (before.tolerance, len(before.logprobs))


def announce(directory: Path, logprobs: list[float], **more: Any) -> None:
    """Have the trainer's manifest say what its own model answers."""
    write_manifest(directory)
    path = directory / paths.MANIFEST_FILE
    said = {"tokens": PROMPT, "logprobs": logprobs, "tolerance": 0.05} | more
    path.write_text(json.dumps(json.loads(path.read_text()) | {"probe": said}))


PROMPT = [7, 8, 9, 10]


async def test_an_engine_that_answers_as_the_trainer_s_model_is_proved_so(
    weights: Path, subject: Subject
) -> None:
    held = consume(str(weights / NEXT), stamps_of(weights / NEXT)).weights
    announce(weights / NEXT, [held.logprob(PROMPT, place) for place in (1, 2, 3)])

    proof = shown(await subject.serve(NEXT))

    assert Evidence.TRAINER in proof.verified_by


async def test_an_engine_that_answers_otherwise_than_the_trainer_s_model_fails_its_proof(
    weights: Path, subject: Subject
) -> None:
    held = consume(str(weights / NEXT), stamps_of(weights / NEXT)).weights
    announce(weights / NEXT, [held.logprob(PROMPT, place) - 0.2 for place in (1, 2, 3)])
    await subject.ok(paths.PREPARE_PATH, NEXT)

    problem = await subject.refused(Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, NEXT)

    assert "from the trainer's by 0.2000" in problem.message


async def test_a_probe_that_is_none_is_refused_by_its_field(
    weights: Path, subject: Subject
) -> None:
    announce(weights / NEXT, [-1.0])

    problem = await subject.refused(Code.CHECKPOINT_INVALID, paths.PREPARE_PATH, NEXT)

    assert "probe: got 1 logprobs for 4 tokens" in problem.message


async def test_an_engine_that_fails_at_two_requests_proves_a_good_version_all_the_same(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(paths.BASE_VERSION)
    await behave(fake, errors=2)

    report = await subject.serve(subject.versions.first)

    assert shown(report).verified_by
    assert fake.engine.behaviour.errors == 0


async def test_an_engine_that_fails_at_two_reloads_is_given_a_good_version_all_the_same(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(paths.BASE_VERSION)
    before = fake.engine.reloads
    await behave(fake, reload_errors=2)

    report = await subject.serve(subject.versions.first)

    assert shown(report).verified_by
    assert fake.engine.reloads == before + 3


async def test_an_engine_that_fails_each_time_proves_nothing(
    fake: Worker, subject: Subject
) -> None:
    await subject.serve(paths.BASE_VERSION)
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)
    await behave(fake, errors=100)

    problem = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.first
    )

    assert "returned 500" in problem.message
    assert (await subject.report()).stage is Stage.DOUBT
