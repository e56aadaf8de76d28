"""An engine that ends while it loads a version is counted, whether or not it is seen."""

from pathlib import Path

import pytest

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Exits
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.stage_machine import StageEvent
from tests import proofs


def loading(directory: Path, operation: str = "rollout-1", boot: str = "1") -> Journal:
    """Return the journal of a worker whose engine loads step-2."""
    journal = Journal(directory)
    journal.move(StageEvent.BOOTED, boot=boot)
    journal.move(StageEvent.PAUSING)
    journal.move(StageEvent.RELOADING, version="step-2", operation=operation)
    return journal


def exits(count: int, operation: str = "rollout-1") -> Exits:
    return Exits(version="step-2", operation=operation, count=count)


def test_an_engine_that_ended_while_no_sidecar_looked_is_counted(tmp_path: Path) -> None:
    loading(tmp_path)

    journal = Journal(tmp_path)
    journal.move(StageEvent.BOOTED, boot="2")

    assert journal.record.exits == exits(1)


def test_each_try_under_one_operation_counts_and_another_operation_begins_at_one(
    tmp_path: Path,
) -> None:
    for boot in range(3):
        loading(tmp_path, boot=str(boot))
    assert Journal(tmp_path).record.exits == exits(2)

    loading(tmp_path, "rollout-2", boot="3")
    journal = Journal(tmp_path)
    journal.move(StageEvent.BOOTED, boot="4")

    assert journal.record.exits == exits(1, "rollout-2")


def test_an_engine_in_doubt_that_ends_did_not_end_in_the_load(tmp_path: Path) -> None:
    loading(tmp_path)

    journal = Journal(tmp_path)
    journal.move(StageEvent.BACK)
    journal.move(StageEvent.BOOTED, boot="2")

    assert journal.record.exits is None


@pytest.mark.parametrize("ends", ["proved", "refused"])
def test_a_load_that_ended_otherwise_is_about_the_version(tmp_path: Path, ends: str) -> None:
    loading(tmp_path)
    journal = loading(tmp_path, boot="2")
    assert journal.record.exits == exits(1)

    journal.move(StageEvent.RELOADED, version="step-2")
    if ends == "proved":
        journal.move(StageEvent.PROVED, proof=proofs.proof("step-2"))
    else:
        journal.move(StageEvent.PROOF_FAILED)
        problem = Problem.of(Code.PROOF_FAILED, "why", version="step-2", operation="rollout-1")
        journal.failed(problem, has_exited=False)

    assert journal.record.exits is None
    assert journal.record.loading is None


def test_a_transfer_of_a_trainer_is_no_load_of_a_command(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.move(StageEvent.BOOTED, boot="1")
    journal.move(StageEvent.PAUSING)
    journal.move(StageEvent.RELOADING, operation="a trainer's")
    journal.move(StageEvent.BOOTED, boot="2")

    assert journal.record.exits is None
