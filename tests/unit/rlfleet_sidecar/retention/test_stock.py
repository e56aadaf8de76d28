"""What a volume shows as unneeded: by its pointer, by what is whole, by when it was written."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from rlfleet.publish import Options, Publisher
from rlfleet_sidecar.checkpoints.layouts import Layouts
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.retention.stock import MOST_COMPARED, MOST_SHOWN, Stock
from rlfleet_sidecar.settings import SidecarSettings

DAY_S = 86_400


def stock(root: Path, path: str = "{version}") -> Stock:
    settings = SidecarSettings(
        model_name="m", model_path=Path("/m"), weights_path=f"{root}/{path}", engine_uid=None
    )
    return Stock(settings, Layouts.of(settings))


def written(folder: Path, at: int) -> None:
    """Give a version and its files a time in the order of numbers."""
    for path in (*folder.iterdir(), folder):
        os.utime(path, (at, at))


def steps(root: Path, *numbers: int) -> None:
    for number in numbers:
        folder = root / f"step-{number}"
        folder.mkdir(parents=True)
        (folder / "STABLE").touch()
        written(folder, number * DAY_S)


def published(root: Path, count: int, **options: object) -> None:
    with Publisher(root, Options(**options)) as publisher:  # type: ignore[arg-type]
        for number in range(count):
            folder = publisher.publish({"a": np.full(9, number, np.float32)}).name
            place = root / "updates" if options.get("run") else root
            written(place / folder, number * DAY_S)


def test_older_versions_are_unneeded(tmp_path: Path) -> None:
    steps(tmp_path, 1, 2, 9, 10, 11)

    assert stock(tmp_path).unneeded({"step-10"}, 0) == (("step-1", "step-2", "step-9"), 3)
    assert stock(tmp_path).unneeded({"step-10", "step-2"}, 3) == (("step-1",), 1)


def test_the_oldest_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    steps(tmp_path, *range(1, 41))

    versions, count = stock(tmp_path).unneeded({"step-40"}, 0)

    assert (len(versions), versions[0], count) == (MOST_SHOWN, "step-1", 39)


def test_versions_of_a_later_run_that_began_again_are_not_unneeded(tmp_path: Path) -> None:
    steps(tmp_path, 1, 2, 3, 50)
    written(tmp_path / "step-1", 60 * DAY_S)
    written(tmp_path / "step-2", 61 * DAY_S)

    assert stock(tmp_path).unneeded({"step-50"}, 0) == (("step-3",), 1)


def test_versions_that_are_passed_over_hide_no_others(tmp_path: Path) -> None:
    """Without the directory of the weights, or written again by a later run."""
    steps(tmp_path, *range(1, 61))
    for number in range(1, 21):
        (tmp_path / f"step-{number}" / "STABLE").unlink()
        written(tmp_path / f"step-{number + 20}", 90 * DAY_S)

    versions, count = stock(tmp_path).unneeded({"step-60"}, 0)

    assert (versions, count) == (tuple(f"step-{number}" for number in range(41, 57)), 19)


def test_a_look_compares_few_versions_and_the_next_ones_the_rest(tmp_path: Path) -> None:
    passed = 2 * MOST_COMPARED
    steps(tmp_path, *range(1, passed + 41))
    for number in range(1, passed + 1):
        (tmp_path / f"step-{number}" / "STABLE").unlink()
    looks = stock(tmp_path)

    found = []
    for _ in range(8):
        versions, _ = looks.unneeded({f"step-{passed + 40}"}, 0)
        found.append(len(versions))
        for version in versions:
            shutil.rmtree(tmp_path / version)

    assert found[:2] == [0, 0]
    assert sum(found) == 39
    assert len(list(tmp_path.iterdir())) == passed + 1


def test_a_version_that_was_passed_over_is_unneeded_once_what_follows_it_is_later(
    tmp_path: Path,
) -> None:
    """A later run began the numbers again, and the fleet follows it now."""
    steps(tmp_path, 1, 2, 3, 50)
    for number in (1, 2, 3):
        written(tmp_path / f"step-{number}", (60 + number) * DAY_S)
    looks = stock(tmp_path)

    assert looks.unneeded({"step-50"}, 0) == ((), 0)
    assert looks.unneeded({"step-3"}, 0) == (("step-1", "step-2"), 2)


def test_nothing_is_unneeded_if_the_needed_version_is_gone(tmp_path: Path) -> None:
    steps(tmp_path, 1, 2)

    assert stock(tmp_path).unneeded({"step-9"}, 0) == ((), 0)


def test_full_versions_end_the_chains_of_deltas(tmp_path: Path) -> None:
    published(tmp_path, 7, anchor_every=3)

    found, _ = stock(tmp_path).unneeded({"weight_v000006"}, 0)

    assert found == ("weight_v000001", "weight_v000002", "weight_v000003")


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_a_version_with_a_torn_index_is_not_whole(tmp_path: Path, content: str) -> None:
    published(tmp_path, 7, anchor_every=3)
    (tmp_path / "weight_v000004" / "model.safetensors.index.json").write_text(content)
    written(tmp_path / "weight_v000004", 3 * DAY_S)

    assert stock(tmp_path).unneeded({"weight_v000006"}, 0) == ((), 0)


def test_what_the_pointer_has_not_passed_is_not_unneeded(tmp_path: Path) -> None:
    """A trainer that begins again in one store is behind the version that workers serve."""
    published(tmp_path, 6, run="run-1", anchor_every=1)
    (tmp_path / "latest").write_text("run-2/weight_v000003")

    found = stock(tmp_path, "updates/{version}").unneeded({"weight_v000006"}, 0)

    assert found == (("weight_v000001", "weight_v000002"), 2)


def test_a_broken_pointer_is_an_error(tmp_path: Path) -> None:
    steps(tmp_path, 1, 2)
    (tmp_path / "latest").write_text("see below")

    with pytest.raises(SidecarError, match="expected RUN"):
        stock(tmp_path).unneeded({"step-2"}, 0)
