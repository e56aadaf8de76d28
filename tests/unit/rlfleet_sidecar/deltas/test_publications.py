"""Which version a delta is built from, and which of a series may be read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.check import Checkpoint, Checkpoints
from rlfleet_sidecar.checkpoints.safe_paths import stamp_of
from rlfleet_sidecar.deltas.chain import Link
from rlfleet_sidecar.deltas.publications import Build, Copy, Publications, grouped
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.checkpoints import SHAPES, write_file, write_manifest, write_version
from tests.fakes.deltas.indexed import INDEX, write_chain, write_delta
from tests.fakes.deltas.spoilt import SPOILED
from tests.fakes.deltas.tensors import Tensors, tensors_of, trained


@pytest.fixture
def settings(model: Path, weights: Path) -> SidecarSettings:
    return SidecarSettings(
        model_name="fake", model_path=model, weights_path=f"{weights}/{{version}}"
    )


@pytest.fixture
def staged() -> dict[str, Copy]:
    """The worker's copies."""
    return {}


@pytest.fixture
def publications(settings: SidecarSettings, staged: dict[str, Copy]) -> Publications:
    return Publications(settings, Checkpoints(settings), staged.get, at_once=2)


@pytest.fixture
def made(publications: Publications, tmp_path: Path) -> Callable[[str], tuple[Build, Tensors]]:
    def make(version: str) -> tuple[Build, Tensors]:
        draft = tmp_path / f"draft-of-{version}"
        draft.mkdir()
        with publications.build(version) as build:
            build.source.fill(draft, lambda *_: None)
        return build, tensors_of(draft)

    return make


def stamps(directory: Path) -> tuple[FileStamp, ...]:
    return tuple(stamp_of(path.name, path.lstat()) for path in sorted(directory.iterdir()))


def copy_of(cache: Path, weights: Path, version: str, tensors: Tensors, run: str = "") -> Copy:
    """Return a worker's copy of what is published now."""
    directory = cache / version
    directory.mkdir(parents=True)
    write_file(directory / "model.safetensors", SHAPES, 0)
    path = directory / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: -sum(map(len, tensors.values()))] + b"".join(tensors.values()))
    made = Checkpoint(version, directory, stamps(directory), 1, 1, "blake3:00")
    return Copy(made, stamps(weights / version), run)


def with_a_copy(
    staged: dict[str, Copy], cache: Path, weights: Path, base: Tensors
) -> list[Tensors]:
    """Publish three versions, of which the worker has the second."""
    states = write_chain(weights, base, 3)
    staged["weight_v000002"] = copy_of(cache, weights, "weight_v000002", states[2])
    return states


def test_a_laggard_builds_from_the_base_model_in_passes(
    made: Callable[[str], tuple[Build, Tensors]], base: Tensors, weights: Path
) -> None:
    states = write_chain(weights, base, 5)

    build, tensors = made("weight_v000005")

    assert (build.chain.start, len(build.chain.links)) == (BASE_VERSION, 5)
    assert tensors == states[5]


def test_a_chain_begins_at_the_newest_full_version(
    made: Callable[[str], tuple[Build, Tensors]], base: Tensors, weights: Path
) -> None:
    write_chain(weights, base, 1)
    full = write_version(weights, "weight_v000002", seed=5)
    two = tensors_of(full)
    write_delta(weights, 3, two, trained(two, 3))

    build, tensors = made("weight_v000003")

    assert (build.chain.start, len(build.chain.links)) == ("weight_v000002", 1)
    assert tensors == trained(two, 3)


def test_a_delta_over_a_full_version_that_its_manifest_contradicts_is_rejected(
    made: Callable[[str], tuple[Build, Tensors]], weights: Path
) -> None:
    full = write_version(weights, "weight_v000001", seed=5)
    write_manifest(full)
    one = tensors_of(full)
    write_delta(weights, 2, one, one | {"model.norm.weight": bytes(16)})
    data = bytearray((full / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (full / "model.safetensors").write_bytes(data)

    with pytest.raises(SidecarError, match="by rlfleet-manifest") as caught:
        made("weight_v000002")

    assert caught.value.code is Code.DIGEST_MISMATCH
    data[len(data) // 2] ^= 1
    (full / "model.safetensors").write_bytes(data)
    (weights.parent / "draft-of-weight_v000002").rmdir()
    assert made("weight_v000002")[1]["model.norm.weight"] == bytes(16)


def test_a_full_version_without_a_marker_needs_its_number_in_the_index(
    made: Callable[[str], tuple[Build, Tensors]], base: Tensors, weights: Path
) -> None:
    full = write_version(weights, "weight_v000002", seed=5, shards=2)
    (full / "STABLE").unlink()
    two = tensors_of(full)
    write_delta(weights, 3, two, trained(two, 3))

    with pytest.raises(SidecarError, match="has no marker") as caught:
        made("weight_v000003")
    assert caught.value.code == "CheckpointIncomplete"

    index = json.loads((full / INDEX).read_text())
    (full / INDEX).write_text(json.dumps(index | {"metadata": {"version": "000002"}}))
    (weights.parent / "draft-of-weight_v000003").rmdir()
    assert made("weight_v000003")[1] == trained(two, 3)


def test_a_worker_that_has_the_version_before_reads_one_delta(
    made: Callable[[str], tuple[Build, Tensors]],
    staged: dict[str, Copy],
    base: Tensors,
    weights: Path,
    tmp_path: Path,
) -> None:
    states = with_a_copy(staged, tmp_path / "cache", weights, base)

    build, tensors = made("weight_v000003")

    assert (build.chain.start, len(build.chain.links)) == ("weight_v000002", 1)
    assert tensors == states[3]


def test_a_copy_of_a_number_that_is_used_again_is_no_base(
    made: Callable[[str], tuple[Build, Tensors]],
    staged: dict[str, Copy],
    base: Tensors,
    weights: Path,
    tmp_path: Path,
) -> None:
    with_a_copy(staged, tmp_path / "cache", weights, base)
    other = trained(base, 77)
    write_delta(weights, 1, base, other)
    write_delta(weights, 2, other, trained(other, 78))
    write_delta(weights, 3, trained(other, 78), trained(other, 79))

    build, tensors = made("weight_v000003")

    assert (build.chain.start, tensors) == (BASE_VERSION, trained(other, 79))


def test_a_copy_whose_directory_is_gone_is_no_base(
    publications: Publications,
    staged: dict[str, Copy],
    base: Tensors,
    weights: Path,
    tmp_path: Path,
) -> None:
    with_a_copy(staged, tmp_path / "cache", weights, base)
    for path in (weights / "weight_v000002").iterdir():
        path.unlink()
    (weights / "weight_v000002").rmdir()

    with (
        pytest.raises(SidecarError, match="weight_v000002 does not exist") as caught,
        publications.build("weight_v000003"),
    ):
        pass
    assert caught.value.code == "CheckpointIncomplete"


def test_a_bad_delta_anywhere_is_found_before_one_is_applied(
    publications: Publications, base: Tensors, weights: Path
) -> None:
    write_chain(weights, base, 5)
    SPOILED["a bomb"][2](weights / "weight_v000004")

    with (
        pytest.raises(SidecarError, match="weight_v000004/model-00000-of-00001"),
        publications.build("weight_v000005"),
    ):
        pass


def test_a_delta_that_is_written_again_during_the_check_is_not_applied(
    publications: Publications, base: Tensors, weights: Path, tmp_path: Path
) -> None:
    write_chain(weights, base, 1)
    with publications.build("weight_v000001") as build:
        write_delta(weights, 1, base, trained(base, 9))
        with pytest.raises(SidecarError, match="was written again") as caught:
            build.source.fill(tmp_path, lambda *_: None)
    assert caught.value.code == "CheckpointIncomplete"


@pytest.mark.parametrize("allowed", [0, 3, 8])
def test_checks_end_once_the_version_is_not_wanted(
    allowed: int, publications: Publications, base: Tensors, weights: Path
) -> None:
    write_chain(weights, base, 5)
    asked = 0

    def demand_wanted() -> None:
        nonlocal asked
        asked += 1
        if asked > allowed:
            raise SidecarError(Code.BUSY, "superseded")

    with (
        pytest.raises(SidecarError, match="superseded"),
        publications.build("weight_v000005", demand_wanted),
    ):
        pass
    assert asked == allowed + 1


def test_a_pass_opens_a_bounded_number_of_files() -> None:
    stamp = FileStamp(name="a", size=1, mtime_ns=1, inode=1)

    def link(number: int, files: int) -> Link:
        return Link(str(number), number, "", (stamp,) * files)

    links = [link(number, files) for number, files in enumerate([65, 65, 65, 65, 300, 1, 1, 1])]

    passes = grouped(links, 2, 130)

    assert [link for one in passes for link in one] == links
    assert [[link.number for link in one] for one in passes] == [[0, 1], [2, 3], [4], [5, 6], [7]]
    assert [len(one) for one in grouped(links[:4] * 8, 32)] == [3] * 10 + [2]


class TestStitch:
    """A store of Stitch on a volume."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        (tmp_path / "store" / "updates").mkdir(parents=True)
        return tmp_path / "store"

    @pytest.fixture
    def weights(self, store: Path) -> Path:
        return store / "updates"

    def test_a_version_beyond_the_pointer_is_waited_for(
        self, store: Path, publications: Publications, base: Tensors, weights: Path
    ) -> None:
        write_chain(weights, base, 2)
        (store / "latest").write_text("run-1/weight_v000001")

        assert publications.find("weight_v000001") is not None
        with pytest.raises(SidecarError, match="older than weight_v000002") as caught:
            publications.find("weight_v000002")
        assert caught.value.code == "CheckpointIncomplete"

    @pytest.mark.parametrize(
        ("text", "message", "code"),
        [
            ("the newest", "expected RUN/weight_vNNNNNN", "CheckpointInvalid"),
            ("", "is empty", "CheckpointIncomplete"),
        ],
    )
    def test_a_pointer_without_a_version_hides_all(
        self,
        text: str,
        message: str,
        code: str,
        store: Path,
        publications: Publications,
        base: Tensors,
        weights: Path,
    ) -> None:
        write_chain(weights, base, 1)
        (store / "latest").write_text(text)

        with pytest.raises(SidecarError, match=message) as caught:
            publications.find("weight_v000001")
        assert caught.value.code == code

    @pytest.mark.parametrize("kind", ["link", "folder"])
    def test_what_is_no_file_is_no_pointer(
        self, kind: str, store: Path, publications: Publications, base: Tensors, weights: Path
    ) -> None:
        write_chain(weights, base, 2)
        if kind == "link":
            (store / "latest").symlink_to("updates/weight_v000001")
        else:
            (store / "latest").mkdir()

        assert publications.find("weight_v000002") is not None
        assert publications.run_of("weight_v000002") == ""

    def test_a_copy_of_another_run_is_no_base(
        self,
        store: Path,
        made: Callable[[str], tuple[Build, Tensors]],
        staged: dict[str, Copy],
        base: Tensors,
        weights: Path,
        tmp_path: Path,
    ) -> None:
        states = write_chain(weights, base, 2)
        (store / "latest").write_text("run-2/weight_v000002")
        copy = copy_of(tmp_path / "cache", weights, "weight_v000001", states[1], run="run-1")
        staged["weight_v000001"] = copy

        build, tensors = made("weight_v000002")

        assert (build.chain.start, build.run, tensors) == (BASE_VERSION, "run-2", states[2])

    def test_a_store_without_a_pointer_is_a_plain_directory(
        self, made: Callable[[str], tuple[Build, Tensors]], base: Tensors, weights: Path
    ) -> None:
        states = write_chain(weights, base, 1)

        assert made("weight_v000001")[1] == states[1]
