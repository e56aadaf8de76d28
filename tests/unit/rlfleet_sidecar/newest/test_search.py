"""Which version a worker takes for the newest, in what each publisher writes."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from rlfleet.publish import Options, Publisher
from rlfleet_contract.worker.report import Newest
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.checkpoints.safe_paths import Layout, OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.newest.search import Search

MARKERS = ("STABLE", ".finished")
NOW = 1000.0


def newest(
    root: Path, path: str = "{version}", known: Newest | None = None, *, now: float = NOW
) -> Newest | None:
    search = Search(Layouts(Layout.of(f"{root}/{path}")), MARKERS, None)
    return search.newest(known, now)


def named(root: Path, path: str = "{version}") -> str | None:
    found = newest(root, path)
    return None if found is None else found.version


def version(root: Path, name: str, *files: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).touch()
    return folder


def test_the_highest_step_with_a_marker_is_the_newest(tmp_path: Path) -> None:
    version(tmp_path, "step_9", "STABLE")
    version(tmp_path, "step_10", "STABLE")
    version(tmp_path, "step_11", "model.safetensors")
    version(tmp_path, "final", "STABLE")
    version(tmp_path, ".hidden_99", "STABLE")
    (tmp_path / "step_12").touch()

    assert named(tmp_path) == "step_10"


def test_a_finished_step_that_was_begun_again_is_not_complete(tmp_path: Path) -> None:
    version(tmp_path, "step_1", ".finished")
    folder = version(tmp_path, "step_2", ".finished", ".sender_ready")
    os.utime(folder / ".finished", (1, 1))

    assert named(tmp_path) == "step_1"


def test_the_pattern_of_the_path_gives_the_versions(tmp_path: Path) -> None:
    version(tmp_path, "run-a-7/weight", "STABLE")
    version(tmp_path, "run-a-8")
    version(tmp_path, "run-b-9/weight", "STABLE")

    assert named(tmp_path, "run-a-{version}/weight") == "7"


def test_versions_of_a_long_run_are_found_among_all(tmp_path: Path) -> None:
    for number in range(10_001):
        (tmp_path / f"step_{number}").mkdir()
    (tmp_path / "step_10000" / "STABLE").touch()

    assert named(tmp_path) == "step_10000"


def test_nothing_complete_is_nothing(tmp_path: Path) -> None:
    assert named(tmp_path) is None
    version(tmp_path, "step_1")
    assert named(tmp_path) is None


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SidecarError, match="does not exist"):
        newest(tmp_path / "absent")


def published(root: Path, count: int, run: str = "") -> None:
    with Publisher(root, Options(run=run, marker="")) as publisher:
        for number in range(count):
            publisher.publish({"a": np.full(9, number, np.float32)})


def test_full_versions_and_deltas_are_complete_by_their_index(tmp_path: Path) -> None:
    published(tmp_path, 3)

    assert named(tmp_path) == "weight_v000003"


@pytest.mark.parametrize("lost", ["model.safetensors.index.json", "*.safetensors"])
def test_a_delta_that_lacks_a_file_is_not_complete(tmp_path: Path, lost: str) -> None:
    published(tmp_path, 3)
    for file in (tmp_path / "weight_v000003").glob(lost):
        file.unlink()

    assert named(tmp_path) == "weight_v000002"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metadata": {"version": "000002"}}'])
def test_a_torn_or_misnumbered_index_is_not_complete(tmp_path: Path, content: str) -> None:
    published(tmp_path, 3)
    (tmp_path / "weight_v000003" / "model.safetensors.index.json").write_text(content)

    assert named(tmp_path) == "weight_v000002"


def indexed(root: Path, name: str, said: object, *files: str) -> None:
    folder = version(root, name, "model.safetensors", *files)
    weight_map = {"a": "model.safetensors"}
    index = {"metadata": {"version": said}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("said", ["4.57.1", "6", 7, "9" * 5000])
@pytest.mark.parametrize("name", ["step-7", "weight_v000007"])
def test_a_version_of_another_tool_in_an_index_leaves_it_to_the_marker(
    tmp_path: Path, name: str, said: object
) -> None:
    indexed(tmp_path, name, said)
    assert named(tmp_path) is None
    (tmp_path / name / "STABLE").touch()
    assert named(tmp_path) == name


def test_only_a_series_is_complete_by_its_index(tmp_path: Path) -> None:
    indexed(tmp_path, "weight_v000006", "000006")
    indexed(tmp_path, "step-7", "7")

    assert named(tmp_path) == "weight_v000006"


def test_a_delta_with_another_number_is_not_complete_by_a_marker(tmp_path: Path) -> None:
    published(tmp_path, 2)
    (tmp_path / "weight_v000002").rename(tmp_path / "weight_v000003")
    (tmp_path / "weight_v000003" / "STABLE").touch()

    assert named(tmp_path) == "weight_v000001"


@pytest.mark.parametrize("content", ["[" * 100_000, '{"metadata": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("file", ["model.safetensors.index.json", "manifest.json"])
def test_one_bad_directory_does_not_hide_the_others(
    tmp_path: Path, file: str, content: str
) -> None:
    version(tmp_path, "step-1", "STABLE")
    name = "delta-00000002" if file == "manifest.json" else "weight_v000002"
    (version(tmp_path, name) / file).write_text(content)

    assert named(tmp_path) == "step-1"


class StaleHandle(Layout):
    """A mount whose server has lost one directory."""

    @contextmanager
    def open(self, version: str, reader_uid: int | None) -> Iterator[tuple[OpenFolder, ...]]:
        """Fail as NFS does."""
        if version == "step-2":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        with super().open(version, reader_uid) as folders:
            yield folders


def test_a_directory_that_the_server_has_lost_does_not_hide_the_others(tmp_path: Path) -> None:
    for name in ("step-1", "step-2"):
        version(tmp_path, name, "STABLE")
    layout = StaleHandle(tmp_path, ("{version}",))

    found = Search(Layouts(layout), MARKERS, None).newest(None, NOW)

    assert found == Newest(version="step-1", found_at=NOW)


def test_a_manifest_completes_a_version(tmp_path: Path) -> None:
    """As SkyRL writes them."""
    for number in (1, 2, 3):
        folder = version(tmp_path, f"delta-{number:08d}", "a.safetensors")
        files = ["a.safetensors"] if number < 3 else ["a.safetensors", "b.safetensors"]
        manifest = {"version": number, "base_version": number - 1, "payload_files": files}
        (folder / "manifest.json").write_text(json.dumps(manifest))

    assert named(tmp_path) == "delta-00000002"


# --- pointers -----------------------------------------------------------------------------------


def test_a_pointer_has_precedence_over_higher_numbers(tmp_path: Path) -> None:
    published(tmp_path, 3)
    (tmp_path / "latest").write_text("weight_v000002")

    assert named(tmp_path) == "weight_v000002"


def test_a_store_with_a_pointer_names_its_run(tmp_path: Path) -> None:
    published(tmp_path, 2, run="run-1")

    found = newest(tmp_path / "updates")

    assert found == Newest(version="weight_v000002", run="run-1", found_at=NOW)
    assert named(tmp_path / "updates", "weight_v{version}") == "000002"


def test_a_run_without_a_version_means_the_model_that_engines_boot_with(tmp_path: Path) -> None:
    (tmp_path / "updates").mkdir()
    (tmp_path / "latest").write_text("run-2/weight_v000000")

    assert newest(tmp_path / "updates") == Newest(version="base", run="run-2", found_at=NOW)


@pytest.mark.parametrize(
    ("file", "text"),
    [("latest", "global_step0"), ("latest", "step-0"), ("latest_checkpointed_iteration.txt", "0")],
)
def test_another_trainer_s_version_0_is_not_the_base_model(
    tmp_path: Path, file: str, text: str
) -> None:
    (tmp_path / file).write_text(text)

    assert named(tmp_path) is None


def test_a_pointer_to_a_version_that_is_not_there_yet_is_nothing(tmp_path: Path) -> None:
    published(tmp_path, 1)
    (tmp_path / "latest").write_text("weight_v000002")

    assert named(tmp_path) is None


@pytest.mark.parametrize("text", ["see below", "", "\n"])
def test_a_broken_or_empty_pointer_hides_every_version(tmp_path: Path, text: str) -> None:
    """As the reader of deltas waits too: before its first version a store names none."""
    published(tmp_path, 1)
    (tmp_path / "latest").write_text(text)

    with pytest.raises(SidecarError, match="expected RUN/weight_vNNNNNN"):
        newest(tmp_path)


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_directory_or_a_link_is_no_pointer(tmp_path: Path, kind: str) -> None:
    published(tmp_path, 2)
    if kind == "link":
        (tmp_path / "latest").symlink_to("weight_v000001")
    else:
        (tmp_path / "latest").mkdir()

    assert named(tmp_path) == "weight_v000002"


def test_verl_s_iteration_names_its_directory(tmp_path: Path) -> None:
    version(tmp_path, "global_step_9/actor")
    version(tmp_path, "global_step_10/actor")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")

    assert named(tmp_path, "global_step_{version}/actor") == "10"
    assert named(tmp_path, "{version}/actor") == "global_step_10"


@pytest.mark.parametrize("run", ["", "run-1"])
def test_a_version_that_stays_the_newest_keeps_its_time(tmp_path: Path, run: str) -> None:
    published(tmp_path, 1, run)
    root = tmp_path / "updates" if run else tmp_path
    first = newest(root)

    assert newest(root, known=first, now=NOW + 5) == first
    published(tmp_path, 1, run)
    second = newest(root, known=first, now=NOW + 5)
    assert second == Newest(version="weight_v000002", run=run, found_at=NOW + 5)
