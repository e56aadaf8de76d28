"""Every verb, in order, out of order and repeated; on the fake worker and on a real one."""

from uuid import uuid4

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.report import Stage, WorkerReport
from tests.contract.subject import Subject
from tests.proofs import foreign

IN_ORDER = {
    paths.PREPARE_PATH: None,
    paths.PAUSE_PATH: Stage.PAUSED,
    paths.FLUSH_PATH: Stage.PAUSED,
    paths.RELOAD_PATH: Stage.LOADED,
    paths.VERIFY_PATH: Stage.PROVED,
    paths.RESUME_PATH: Stage.OPEN,
}


def shown(report: WorkerReport) -> tuple[str | None, str]:
    """Return what is the same whenever a worker proves the same version."""
    assert report.proof is not None
    return report.proof.tensors, report.proof.tokens


async def test_a_fresh_worker_proves_its_boot_weights_and_opens(subject: Subject) -> None:
    report = await subject.serve(paths.BASE_VERSION)

    assert (report.stage, report.proved) == (Stage.OPEN, paths.BASE_VERSION)
    assert report.proof is not None
    assert Evidence.PROBE in report.proof.verified_by
    assert await subject.is_ready()


async def test_the_whole_sequence_ends_in_serving_the_version(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    operation = uuid4().hex
    was_staged = subject.versions.second in (await subject.report()).staged
    await subject.ok(paths.PREPARE_PATH, subject.versions.second, operation=operation)

    report = await subject.ok(
        paths.UPDATE_WEIGHTS_PATH, subject.versions.second, operation=operation
    )

    assert (report.stage, report.proved) == (Stage.OPEN, subject.versions.second)
    assert report.installed == report.prepared == subject.versions.second
    assert report.last_change is not None
    assert report.last_change.operation == operation
    timings = report.last_change.timings
    assert 0 < timings.reload_s < timings.window_s
    # A worker that has a copy already has nothing to do.
    assert timings.prepare_s > 0 or was_staged


async def test_the_verbs_one_by_one_go_the_same_way_and_may_each_be_repeated(
    subject: Subject,
) -> None:
    await subject.serve(subject.versions.first)
    operation = uuid4().hex

    for path, stage in IN_ORDER.items():
        for _time in range(2):
            report = await subject.ok(path, subject.versions.second, operation=operation)
            assert stage in (None, report.stage)
            assert await subject.is_ready(), "requests wait at the gate during a change"

    assert report.proved == subject.versions.second
    assert report.last_change is not None
    assert report.last_change.operation == operation


async def test_an_update_to_the_served_version_does_nothing(subject: Subject) -> None:
    before = await subject.serve(subject.versions.first)

    after = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.first)

    assert after.last_change == before.last_change
    assert after.stage is Stage.OPEN


async def test_equal_weights_answer_equally_and_others_otherwise(subject: Subject) -> None:
    first = await subject.serve(subject.versions.first)
    second = await subject.serve(subject.versions.second)
    again = await subject.serve(subject.versions.first)

    assert shown(first) == shown(again) != shown(second)


async def test_base_is_loaded_from_the_model_path_after_another_version(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    base = await subject.serve(paths.BASE_VERSION)
    await subject.serve(subject.versions.second)

    again = await subject.serve(paths.BASE_VERSION)

    assert (again.proved, shown(again)) == (paths.BASE_VERSION, shown(base))


async def test_an_unprepared_version_is_refused_before_any_pause(subject: Subject) -> None:
    before = await subject.serve(subject.versions.first)

    problem = await subject.refused(
        Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second
    )

    assert problem.retryable
    report = await subject.report()
    assert (report.stage, report.failure) == (Stage.OPEN, before.failure)


async def test_a_missing_version_gets_an_error_with_existing_ones(subject: Subject) -> None:
    problem = await subject.refused(
        Code.VERSION_NOT_FOUND, paths.PREPARE_PATH, subject.versions.absent, wait_s=0
    )

    assert subject.versions.first in problem.message
    assert (await subject.report()).refusal == problem


@pytest.mark.parametrize(
    ("which", "code"),
    [("incomplete", Code.CHECKPOINT_INCOMPLETE), ("broken", Code.CHECKPOINT_INVALID)],
)
async def test_a_bad_checkpoint_is_refused_while_everything_serves(
    subject: Subject, which: str, code: Code
) -> None:
    before = await subject.serve(subject.versions.first)
    version = getattr(subject.versions, which)

    await subject.refused(code, paths.PREPARE_PATH, version, wait_s=0)

    after = await subject.report()
    assert (after.stage, after.proved) == (Stage.OPEN, subject.versions.first)
    assert after.prepared == before.prepared
    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, version)
    await subject.ok(paths.PREPARE_PATH, subject.versions.first)
    assert (await subject.report()).refusal is None


async def test_a_pause_is_undone_by_resuming_the_old_version(subject: Subject) -> None:
    before = await subject.serve(subject.versions.first)
    await subject.ok(paths.PAUSE_PATH, subject.versions.second)

    after = await subject.ok(paths.RESUME_PATH, subject.versions.first)

    assert (after.stage, after.proved) == (Stage.OPEN, subject.versions.first)
    assert after.last_change == before.last_change


@pytest.mark.parametrize("path", [paths.FLUSH_PATH, paths.RELOAD_PATH, paths.VERIFY_PATH])
async def test_a_verb_out_of_order_is_refused_and_changes_nothing(
    subject: Subject, path: str
) -> None:
    before = await subject.serve(subject.versions.first)

    await subject.refused(Code.WRONG_STAGE, path, subject.versions.second)

    assert (await subject.report()).stage is before.stage


async def test_a_version_cannot_be_resumed_before_it_is_proved(subject: Subject) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    await subject.ok(paths.PAUSE_PATH, subject.versions.second)
    await subject.ok(paths.RELOAD_PATH, subject.versions.second)

    await subject.refused(Code.WRONG_STAGE, paths.RESUME_PATH, subject.versions.second)
    await subject.refused(Code.WRONG_STAGE, paths.VERIFY_PATH, subject.versions.first)

    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, subject.versions.second)
    assert report.proved == subject.versions.second


async def test_a_worker_that_answers_unlike_its_peers_is_in_doubt_until_a_good_version(
    subject: Subject,
) -> None:
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    command = {"operation": uuid4().hex, "expected": foreign(subject.versions.second)}

    problem = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second, **command
    )

    report = await subject.report()
    assert (report.stage, report.proved, report.failure) == (Stage.DOUBT, None, problem)
    assert not await subject.is_ready()
    for version in (subject.versions.first, subject.versions.second):
        await subject.refused(Code.ENGINE_IN_DOUBT, paths.RESUME_PATH, version)
        await subject.refused(Code.ENGINE_IN_DOUBT, paths.VERIFY_PATH, version)
    again = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second, **command
    )
    assert again == problem, "a repeat has one answer, and does nothing"

    healed = await subject.serve(subject.versions.first)
    assert (healed.stage, healed.failure) == (Stage.OPEN, None)
    assert await subject.is_ready()


async def test_a_served_version_with_another_proof_than_its_peers_is_rejected_and_stays(
    subject: Subject,
) -> None:
    first = subject.versions.first
    await subject.serve(first)

    for path in (paths.UPDATE_WEIGHTS_PATH, paths.VERIFY_PATH):
        await subject.refused(Code.PROOF_FAILED, path, first, expected=foreign(first))

    assert (await subject.report()).stage is Stage.OPEN


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"version": "step-1"}', "operation"),
        (b'{"operation": "o", "version": "../step-1"}', "version"),
        (b'{"operation": "o", "version": "a/b"}', "version"),
        (b'{"operation": "o", "version": "step-1", "timeout_s": 0}', "timeout_s"),
        (b'{"operation": "o", "version": "step-1", "surprise": 1}', "surprise"),
        (b'{"operation": "o", "version": "step-1", "x": "' + b"y" * 1024 * 1024 + b'"}', "bytes"),
    ],
    ids=["empty", "half", "list", "no operation", "dots", "path", "zero", "unknown", "huge"],
)
async def test_a_malformed_command_is_refused_with_the_field_named(
    subject: Subject, body: bytes, named: str
) -> None:
    reply = await subject.admin.post(paths.PAUSE_PATH, content=body)

    assert reply.status_code == 400
    assert reply.json()["code"] == Code.INVALID_REQUEST
    assert named in reply.json()["message"]


async def test_replies_are_compact_json_with_a_length(subject: Subject) -> None:
    for path in (paths.STATE_PATH, "/no/such/route"):
        reply = await subject.admin.get(path)
        assert reply.headers["content-type"] == "application/json"
        assert int(reply.headers["content-length"]) == len(reply.content)
        assert b'": ' not in reply.content
