"""By which hashes a trainer's manifest may list its files."""

import json
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from rlfleet_contract.paths import MANIFEST_FILE
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.headers import content_of
from rlfleet_sidecar.checkpoints.manifest import demand_hashes, manifest_of
from rlfleet_sidecar.checkpoints.safe_paths import open_model
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.staging.staging import Staging
from tests.fakes.checkpoints import write_model

FILE = "model.safetensors"
WRONG = "0" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "step-1", seed=1)


def right(folder: Path) -> dict[str, str]:
    data = (folder / FILE).read_bytes()
    return {
        "sha256": sha256(data).hexdigest(),
        "blake3": blake3(data).hexdigest(),
        "md5": md5(data, usedforsecurity=False).hexdigest(),
    }


def listed(folder: Path, **hashes: str) -> None:
    entry: dict[str, Any] = {"size": (folder / FILE).stat().st_size} | hashes
    (folder / MANIFEST_FILE).write_text(json.dumps({"files": {FILE: entry}}))


def stage(folder: Path, draft: Path | None) -> None:
    """Read the version as a prepare does: in one pass, with the manifest's hashes."""
    with open_model(folder) as opened:
        content = content_of(opened, float("inf"))
        manifest = manifest_of(opened, content, None)
        assert manifest is not None
        if draft is not None:
            draft.mkdir()
        Staging(content, manifest, PrepareJob("step-1", 30)).of_folder(opened, draft)


def read(folder: Path) -> None:
    """Read the files of a manifest alone, as before the deltas above it."""
    with open_model(folder) as opened:
        manifest = manifest_of(opened, content_of(opened, float("inf")), None)
        assert manifest is not None
        demand_hashes(opened, manifest, sorted(manifest.hashes), lambda: None)


@pytest.mark.parametrize("names", [["sha256"], ["blake3"], ["sha256", "blake3"]], ids="+".join)
@pytest.mark.parametrize("is_copied", [True, False])
def test_each_algorithm_will_do(
    folder: Path, tmp_path: Path, names: list[str], *, is_copied: bool
) -> None:
    listed(folder, **{name: right(folder)[name] for name in names})

    stage(folder, tmp_path / "draft" if is_copied else None)
    read(folder)


@pytest.mark.parametrize("wrong", ["sha256", "blake3"])
@pytest.mark.parametrize("other", [True, False], ids=["next to a right one", "alone"])
def test_a_wrong_hash_is_named_with_its_algorithm(
    folder: Path, tmp_path: Path, wrong: str, *, other: bool
) -> None:
    known = {name: right(folder)[name] for name in ("sha256", "blake3")} if other else {}
    listed(folder, **(known | {wrong: WRONG}))
    message = f"{FILE} has {wrong} {right(folder)[wrong]}, expected {WRONG} by {MANIFEST_FILE}"

    with pytest.raises(SidecarError, match=message) as staged:
        stage(folder, tmp_path / "draft")
    with pytest.raises(SidecarError, match=message) as was_read:
        read(folder)
    assert staged.value.code is was_read.value.code is Code.DIGEST_MISMATCH


@pytest.mark.parametrize(
    ("names", "found"), [(["md5"], "md5"), ([], "no hash")], ids=["another", "none"]
)
def test_an_algorithm_that_is_not_known_is_named(
    folder: Path, names: list[str], found: str
) -> None:
    listed(folder, **{name: right(folder)[name] for name in names})

    with pytest.raises(SidecarError, match=f"has {found}, expected sha256 or blake3") as caught:
        read(folder)
    assert caught.value.code is Code.CHECKPOINT_INVALID
    assert f"files.{FILE}" in caught.value.message


def test_more_than_is_known_is_no_error_next_to_a_known_hash(folder: Path) -> None:
    listed(folder, blake3=right(folder)["blake3"], md5=right(folder)["md5"], note="of step 1")

    read(folder)


@pytest.mark.parametrize("algorithm", ["sha256", "blake3"])
@pytest.mark.parametrize("value", ["", "0" * 63, "G" * 64])
def test_what_is_no_hash_is_refused(folder: Path, algorithm: str, value: str) -> None:
    listed(folder, **{algorithm: value})

    with pytest.raises(SidecarError, match=f"files.{FILE}.{algorithm}") as caught:
        read(folder)
    assert caught.value.code is Code.CHECKPOINT_INVALID
