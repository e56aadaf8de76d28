"""A trainer that resumes from its own checkpoint, which is not among those it publishes.

prime-rl up to 2026-08-22 does: it publishes ``broadcasts/step_N``, and its first update after
a restart names ``checkpoints/step_N/weight``, whose marker lies in the directory above.
"""

import shutil
from pathlib import Path

import pytest

from rlfleet_contract import paths
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from tests.contract.subject import Subject
from tests.contract.transcripts import (
    PAUSE,
    RESUME,
    RUNS,
    Call,
    play,
    resume_refused,
    send,
    serves,
    update,
)
from tests.fakes.checkpoints import MARKER, write_version

STEP = "step-2"
SAVED = f"saved-{STEP}"


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """What the trainer saved; step-2 is other weights than the step-2 that it published."""
    root = tmp_path / "checkpoints"
    for step, seed in ((STEP, 8), ("step-3", 9)):
        written = write_version(root / step, "weight", seed)
        (written / MARKER).rename(root / step / MARKER)
    return root


@pytest.fixture
def identity(checkpoints: Path) -> dict[str, object]:
    return {"trainer_saved_path": f"{checkpoints}/{{version}}/weight", "trainer_wait_s": 0.2}


def going_on(directory: Path, status: int = 200, **fields: object) -> Call:
    """Make the first update after a restart."""
    body = {"weight_dir": str(directory)}
    return Call("POST /update_weights", status, fields, body)


async def digest(subject: Subject) -> str | None:
    proof = (await subject.report()).proof
    assert proof is not None
    return proof.tensors


async def test_it_resumes_from_its_checkpoint_and_publishes_the_same_step_later(
    subject: Subject, checkpoints: Path
) -> None:
    await subject.serve("step-1")

    await play(
        (
            PAUSE,
            going_on(checkpoints / STEP / "weight", weight_version=SAVED),
            RESUME,
            RUNS,
            serves(SAVED),
        ),
        subject,
    )
    saved = await digest(subject)
    await play((PAUSE, update(STEP), RESUME, serves(STEP)), subject)

    assert await digest(subject) != saved


async def test_an_operator_brings_a_late_joiner_to_it_by_its_name(
    subject: Subject, checkpoints: Path
) -> None:
    report = await subject.serve(SAVED)

    assert (report.stage, report.proved) == (Stage.OPEN, SAVED)


async def test_it_has_to_be_complete_as_every_version(subject: Subject, checkpoints: Path) -> None:
    await subject.serve("step-1")
    (checkpoints / STEP / MARKER).unlink()
    directory = checkpoints / STEP / "weight"

    await send(PAUSE, subject)
    await send(going_on(directory, 425, code="CheckpointIncomplete"), subject)
    await send(resume_refused(), subject)

    (checkpoints / STEP / MARKER).touch()
    await play((PAUSE, going_on(directory), RESUME, serves(SAVED)), subject)


@pytest.mark.parametrize(
    "inner",
    ["", STEP, f"{STEP}/other", f"../checkpoints/{STEP}/weight", ".x/weight", "base/weight"],
)
async def test_no_other_directory_there_is_one(
    subject: Subject, checkpoints: Path, inner: str
) -> None:
    reply = await subject.admin.post(
        "/update_weights", json={"weight_dir": f"{checkpoints}/{inner}"}
    )

    assert (reply.status_code, reply.json()["code"]) == (422, Code.PATH_REFUSED)
    assert "/weight" in reply.json()["message"]
    assert "/weights/{version}" in reply.json()["message"]


async def test_a_link_there_is_followed_nowhere(subject: Subject, checkpoints: Path) -> None:
    (checkpoints / "step-4").symlink_to(checkpoints / STEP)

    await send(going_on(checkpoints / "step-4" / "weight", 422, code="PathRefused"), subject)


@pytest.mark.parametrize("name", [f"{SAVED}-x", "saved-base", "saved-.x"])
async def test_a_name_leads_to_one_directory_only(
    subject: Subject, weights: Path, name: str
) -> None:
    write_version(weights, name, seed=9)

    reply = await subject.admin.post("/update_weights", json={"weight_dir": f"{weights}/{name}"})
    prepared = await subject.send(paths.PREPARE_PATH, name, wait_s=0)

    assert (reply.status_code, reply.json()["code"]) == (422, Code.PATH_REFUSED)
    assert prepared.json()["code"] in {Code.PATH_REFUSED, Code.VERSION_NOT_FOUND}


async def test_a_checkpoint_that_is_deleted_later_is_served_on(
    subject: Subject, checkpoints: Path
) -> None:
    await subject.serve("step-1")
    await play((PAUSE, going_on(checkpoints / STEP / "weight"), RESUME), subject)

    shutil.rmtree(checkpoints / STEP)

    assert (await subject.serve(SAVED)).proved == SAVED
