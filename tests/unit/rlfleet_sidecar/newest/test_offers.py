"""Which of prime-rl's offers a worker accepts, and what it writes for that."""

import os
from pathlib import Path

import pytest

from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.checkpoints.safe_paths import Layout, OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest.offers import Offers, is_due
from tests.unit.rlfleet_sidecar.newest.test_search import version

OPEN = (".sender_ready",)


def accept(root: Path, path: str = "{version}") -> tuple[str, ...]:
    return Offers(Layouts(Layout.of(f"{root}/{path}"))).accept()


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_an_open_offer_is_accepted_once_and_nothing_else_is_written(tmp_path: Path) -> None:
    version(tmp_path, "step_3", *OPEN)
    before = tree(tmp_path)

    assert accept(tmp_path) == ("step_3",)
    assert accept(tmp_path) == ()
    assert tree(tmp_path) - before == {"step_3/.receiver_ready"}
    assert (tmp_path / "step_3" / ".receiver_ready").read_bytes() == b""


@pytest.mark.parametrize(
    "files",
    [
        (),
        ("model.safetensors", "STABLE"),
        (*OPEN, ".receiver_ready"),
        (*OPEN, ".receiver_ready", ".started"),
        (*OPEN, ".finished"),
    ],
    ids=["empty", "of another trainer", "accepted", "being written", "complete"],
)
def test_what_waits_for_no_receiver_is_left_as_it_is(
    tmp_path: Path, files: tuple[str, ...]
) -> None:
    version(tmp_path, "step_3", *files)
    before = tree(tmp_path)

    assert accept(tmp_path) == ()
    assert tree(tmp_path) == before


def test_an_offer_lies_where_its_trainer_put_it(tmp_path: Path) -> None:
    """A version's directory may hold the weights in another one."""
    outer = version(tmp_path, "run-3", *OPEN)
    (outer / "weight").mkdir()

    assert accept(tmp_path, "run-{version}/weight") == ("3",)
    assert (outer / ".receiver_ready").exists()


def test_no_offer_leads_out_of_the_volume(tmp_path: Path) -> None:
    away = version(tmp_path, "elsewhere", *OPEN)
    root = tmp_path / "weights"
    root.mkdir()
    (root / "step_4").symlink_to(away)
    (root / "step_5").touch()
    version(root, "step_3", *OPEN)

    assert accept(root) == ("step_3",)
    assert not (away / ".receiver_ready").exists()


def test_a_link_in_place_of_the_marker_is_not_followed(tmp_path: Path) -> None:
    folder = version(tmp_path, "step_3", *OPEN)
    (folder / ".receiver_ready").symlink_to(tmp_path / "target")

    accept(tmp_path)

    assert not (tmp_path / "target").exists()


def test_an_offer_that_is_withdrawn_is_no_failure(tmp_path: Path) -> None:
    folder = version(tmp_path, "step_3")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder.rmdir()
        assert not OpenFolder(folder, descriptor, follow=False).create(".receiver_ready")
    finally:
        os.close(descriptor)


def test_a_directory_that_takes_no_file_is_named_with_a_remedy() -> None:
    """The kernel lets no user make a file there, root included."""
    folder = Path("/sys/kernel")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(SidecarError, match=r"failed to write /sys/kernel/x: .*; (let|remove)"):
            OpenFolder(folder, descriptor, follow=False).create("x")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("taken_up", "newest", "expected"),
    [
        (None, None, False),
        (None, "step_3", False),
        ("base", None, True),
        ("base", "step_0", False),
        ("step_3", None, True),
        ("step_3", "step_3", True),
        ("step_3", "step_2", True),
        ("step_3", "step_4", False),
        ("step_9", "step_10", False),
    ],
)
def test_an_offer_waits_until_the_fleet_has_what_was_published_before(
    taken_up: str | None, newest: str | None, *, expected: bool
) -> None:
    seen = None if newest is None else Newest(version=newest, found_at=1.0)

    assert is_due(taken_up, seen) is expected
