"""A worker whose state an earlier release wrote, or whose peer is of one, is never in doubt for it.

Releases before 0.2 digest versions by SHA-256: their records of copies and their proofs have
that, the latter in another field.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.journal_log import line_of
from tests.contract.conftest import settled
from tests.contract.subject import Subject
from tests.fakes.worker import Worker
from tests.journals import journal_of

OLD = sha256(b"what another algorithm makes of it").hexdigest()


def as_before(proof: dict[str, Any]) -> dict[str, Any]:
    """Return a proof as an earlier release made it."""
    return {name: value for name, value in proof.items() if name != "tensors"} | {"checkpoint": OLD}


def make_older(pod: Path) -> list[str]:
    """Write a pod's state as an earlier release did; returns the versions that it has copies of."""
    changed = []
    for path in (pod / "cache" / "versions").glob("*/.record.json"):
        record = json.loads(path.read_text())
        assert record["checkpoint"]["digest"].startswith("blake3:")
        record["checkpoint"]["digest"] = OLD
        path.write_text(json.dumps(record))
        changed.append(path.parent.name)
    journal = journal_of(pod / "state")
    assert journal["state"]["proved"] is not None
    journal["state"]["proof"] = as_before(journal["state"]["proof"])
    (pod / "state" / "worker.json").write_bytes(line_of(json.dumps(journal)))
    return sorted(changed)


async def test_a_worker_with_an_earlier_release_s_copies_and_proof_changes_to_the_end(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    first, second = subject.versions.first, subject.versions.second
    await subject.serve(first)
    await subject.ok(paths.PREPARE_PATH, second)
    await fake.stop_sidecar()
    assert make_older(tmp_path / "pod") == sorted([first, second])

    await fake.start_sidecar()

    report = await settled(fake, lambda report: report.stage is Stage.OPEN)
    assert (report.proved, report.staged) == (first, []), "no copy counts, and traffic continues"
    assert report.proof is not None
    assert (report.proof.tensors, report.proof.checkpoint) == (None, OLD)
    pauses = fake.engine.pauses
    await subject.refused(Code.NOT_PREPARED, paths.UPDATE_WEIGHTS_PATH, second)
    report = await subject.report()
    assert (report.stage, fake.engine.pauses) == (Stage.OPEN, pauses), "before any pause"

    for version in (second, first):
        report = await subject.serve(version)
        assert (report.stage, report.proved) == (Stage.OPEN, version)
        assert report.proof is not None
        assert set(report.proof.verified_by) >= {Evidence.INSTALLED, Evidence.PROBE}
        assert (report.proof.tensors or "").startswith("blake3:")
        assert report.failure is None
    assert sorted(report.staged) == sorted([first, second])


async def test_the_version_that_an_earlier_release_proved_can_be_loaded_again(
    fake: Worker, subject: Subject, tmp_path: Path
) -> None:
    """Its digest is another one now, which is no sign that it was written again."""
    first = subject.versions.first
    await subject.serve(first)
    await fake.stop_sidecar()
    make_older(tmp_path / "pod")
    await fake.start_sidecar()
    await settled(fake, lambda report: report.stage is Stage.OPEN)

    report = await subject.serve(first)

    assert (report.stage, report.proved, report.refusal) == (Stage.OPEN, first, None)


async def updated(subject: Subject, expected: dict[str, Any]) -> Proof:
    """Take the worker to the second version, with a peer's proof of it."""
    second = subject.versions.second
    await subject.ok(paths.PREPARE_PATH, second)
    report = await subject.ok(paths.UPDATE_WEIGHTS_PATH, second, expected=expected)
    assert (report.stage, report.failure) == (Stage.OPEN, None)
    assert report.proof is not None
    return report.proof


@pytest.mark.parametrize(
    "change",
    [as_before, lambda proof: as_before(proof) | {"a field of a later release": "x"}],
    ids=["an earlier release", "with a field that this one lacks"],
)
async def test_digests_of_a_peer_of_another_release_are_not_compared(
    subject: Subject, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """All else is: its answers and its memory are those of equal weights."""
    peer = (await subject.serve(subject.versions.second)).proof
    assert peer is not None
    await subject.serve(subject.versions.first)

    proof = await updated(subject, change(peer.model_dump(mode="json")))

    assert Evidence.PEERS in proof.verified_by


async def test_all_else_of_a_peer_of_another_release_is_compared(subject: Subject) -> None:
    peer = (await subject.serve(subject.versions.second)).proof
    assert peer is not None
    await subject.serve(subject.versions.first)
    await subject.ok(paths.PREPARE_PATH, subject.versions.second)
    other = as_before(peer.model_dump(mode="json")) | {"parameters": ["another"]}

    problem = await subject.refused(
        Code.PROOF_FAILED, paths.UPDATE_WEIGHTS_PATH, subject.versions.second, expected=other
    )

    assert "memory" in problem.message
