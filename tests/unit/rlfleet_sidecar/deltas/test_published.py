"""A version's commit file decides what its directory contains; nothing is guessed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfleet_sidecar.errors import SidecarError
from tests.fakes.checkpoints import SHAPES, write_file, write_shards
from tests.fakes.deltas.indexed import INDEX, write_delta
from tests.fakes.deltas.shard import first_shard, rewritten
from tests.fakes.deltas.skyrl import write_skyrl
from tests.fakes.deltas.tensors import Tensors, trained
from tests.unit.rlfleet_sidecar.deltas.conftest import look

NAME = "weight_v000001"


def test_a_full_version_is_one_whose_index_has_no_encoding(weights: Path) -> None:
    (weights / NAME).mkdir()
    write_shards(weights / NAME, 1, 2)

    found = look(weights, NAME)

    assert (found.delta, found.is_committed) == (None, False)


def test_an_index_that_names_its_version_commits_a_full_one(weights: Path) -> None:
    (weights / NAME).mkdir()
    write_shards(weights / NAME, 1, 2)
    index = json.loads((weights / NAME / INDEX).read_text())
    for named, is_committed in (("000001", True), ("000002", False), (1, False)):
        index["metadata"] = {"version": named}
        (weights / NAME / INDEX).write_text(json.dumps(index))
        assert look(weights, NAME).is_committed is is_committed


def test_a_lone_file_without_an_index_is_full(weights: Path) -> None:
    (weights / NAME).mkdir()
    write_file(weights / NAME / "model.safetensors", SHAPES, 1)

    assert look(weights, NAME).delta is None


FULL = [(NAME, "model-{}.safetensors"), ("delta-00000001", "delta-rank{}.safetensors")]


@pytest.mark.parametrize(("name", "file"), FULL)
def test_weights_without_an_index_are_full_if_no_marker_is_demanded(
    weights: Path, name: str, file: str
) -> None:
    (weights / name).mkdir()
    for number in range(2):
        write_file(weights / name / file.format(number), SHAPES, number)

    assert look(weights, name).delta is None
    waits(weights, name, ["STABLE"])
    (weights / name / "STABLE").touch()
    assert look(weights, name, ["STABLE"]).delta is None


@pytest.mark.parametrize(("name", "file"), FULL)
def test_a_marker_above_the_weights_makes_a_version_full(
    weights: Path, name: str, file: str
) -> None:
    (weights / name / "actor").mkdir(parents=True)
    write_file(weights / name / "actor" / file.format(0), SHAPES, 1)

    waits(weights, name, ["STABLE"], "{version}/actor")
    (weights / name / "STABLE").touch()
    assert look(weights, name, ["STABLE"], "{version}/actor").delta is None


@pytest.mark.parametrize("markers", [[], ["STABLE"]])
@pytest.mark.parametrize("write", [write_delta, write_skyrl])
@pytest.mark.parametrize("nbytes", [None, 12])
def test_a_delta_without_its_last_file_is_waited_for(
    base: Tensors,
    weights: Path,
    write: Callable[..., Path],
    markers: list[str],
    nbytes: int | None,
) -> None:
    directory = write(weights, 1, base, trained(base, 1))
    (directory / (INDEX if write is write_delta else "manifest.json")).unlink()
    shard = first_shard(directory)
    shard.write_bytes(shard.read_bytes()[:nbytes])

    waits(weights, directory.name, markers)


def waits(weights: Path, name: str, markers: list[str], path: str = "{version}") -> None:
    with pytest.raises(SidecarError) as caught:
        look(weights, name, markers, path)
    assert caught.value.code == "CheckpointIncomplete"


@pytest.mark.parametrize("name", [NAME, "delta-00000001"])
def test_an_empty_directory_is_waited_for(name: str, weights: Path) -> None:
    (weights / name).mkdir()

    with pytest.raises(SidecarError) as caught:
        look(weights, name)

    assert caught.value.code == "CheckpointIncomplete"


def test_a_reused_number_has_another_identity(base: Tensors, weights: Path) -> None:
    write_delta(weights, 1, base, trained(base, 1))
    before = look(weights, NAME)
    write_delta(weights, 1, base, trained(base, 2))
    after = look(weights, NAME)

    assert (weights / NAME / INDEX).stat().st_size == before.files[0].size
    assert before.identity != after.identity
    assert look(weights, NAME).identity == after.identity


def test_what_changed_is_read_with_its_checksums(base: Tensors, weights: Path) -> None:
    write_delta(weights, 1, base, trained(base, 1), shards=2)

    found = look(weights, NAME)

    assert found.delta is not None
    assert (found.delta.number, found.delta.parent) == (1, 0)
    assert found.delta.fragments.keys() == SHAPES.keys()
    assert {stamp.name for stamp in found.files} == {
        path.name for path in (weights / NAME).iterdir()
    }


def skyrl(weights: Path, base: Tensors) -> tuple[Path, dict[str, object]]:
    directory = write_skyrl(weights, 1, base, trained(base, 1))
    return directory, json.loads((directory / "manifest.json").read_text())


def test_skyrl_s_manifest_is_read(base: Tensors, weights: Path) -> None:
    skyrl(weights, base)

    delta = look(weights, "delta-00000001").delta

    assert delta is not None
    assert delta.skips_unknown
    assert delta.fragments["model.norm.weight"].dtype == "BF16"
    assert delta.fragments["model.norm.weight"].shape == (8,)


def test_skyrl_s_first_form_has_sha256(base: Tensors, weights: Path) -> None:
    directory, manifest = skyrl(weights, base)
    records = manifest["tensors"]
    assert isinstance(records, list)
    for record in records:
        del record["checksum"], record["checksum_algorithm"]
        record["sha256"] = "0" * 64
    (directory / "manifest.json").write_text(json.dumps(manifest))

    delta = look(weights, "delta-00000001").delta

    assert delta is not None
    assert {one.algorithm for one in delta.fragments.values()} == {"sha256"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("version", 2, "version '2', expected 1"),
        ("version", "1", "version '1', expected a whole number"),
        ("version", True, "expected a whole number"),
        ("base_version", 1, "base_version '1', expected 0"),
        ("tensors", {}, "tensors '{}', expected a list"),
        ("tensors", [3], "expected a list of objects"),
        ("payload_files", [], "payload_files '[]', expected"),
    ],
)
def test_a_manifest_with_a_wrong_field_is_rejected(
    field: str, value: object, words: str, base: Tensors, weights: Path
) -> None:
    directory, manifest = skyrl(weights, base)
    (directory / "manifest.json").write_text(json.dumps(manifest | {field: value}))

    with pytest.raises(SidecarError, match="manifest") as caught:
        look(weights, "delta-00000001")

    assert caught.value.code == "CheckpointInvalid"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dtype", "complex64", "dtype 'complex64', expected"),
        ("shape", [-1], "expected a list of whole numbers"),
        ("payload_file", "../x.safetensors", "expected the name of a .safetensors file"),
        ("payload_key", "elsewhere", "does not"),
        ("compressed_num_bytes", 1, "compressed_num_bytes '1', expected"),
        ("checksum", "0", "has checksum '0'"),
        ("checksum_algorithm", "md5", "expected one of"),
        ("name", "lm_head.weight", "twice"),
    ],
)
def test_a_record_with_a_wrong_field_is_rejected(
    field: str, value: object, words: str, base: Tensors, weights: Path
) -> None:
    directory, manifest = skyrl(weights, base)
    records = manifest["tensors"]
    assert isinstance(records, list)
    records[-1][field] = value
    (directory / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(SidecarError) as caught:
        look(weights, "delta-00000001")

    assert caught.value.code == "CheckpointInvalid"
    assert words in caught.value.message


def test_a_payload_without_a_record_is_rejected(base: Tensors, weights: Path) -> None:
    directory, _ = skyrl(weights, base)
    rewritten(directory, lambda shard: shard.payloads.update({"more": b"x"}))

    with pytest.raises(SidecarError, match="does not list more"):
        look(weights, "delta-00000001")


def test_a_missing_payload_file_is_waited_for(base: Tensors, weights: Path) -> None:
    directory, _ = skyrl(weights, base)
    first_shard(directory).unlink()

    with pytest.raises(SidecarError) as caught:
        look(weights, "delta-00000001")

    assert caught.value.code == "CheckpointIncomplete"
