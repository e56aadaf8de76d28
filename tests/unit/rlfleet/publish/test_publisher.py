"""What is published is what a reader of the format reads, on a volume and in a bucket."""

import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import obstore
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore

from rlfleet.publish import Options, Publication, Publisher, PublishError, bucket
from tests.unit.rlfleet.publish import reader
from tests.unit.rlfleet.publish.states import Tensors, model, state, stepped


def published(
    target: object, states: list[Tensors], options: Options | None = None
) -> list[Publication]:
    with Publisher(target, options) as publisher:
        return [publisher.publish(tensors) for tensors in states]


def steps(count: int) -> list[Tensors]:
    found = [model()]
    for seed in range(1, count):
        found.append(stepped(found[-1], seed))
    return found


@pytest.mark.parametrize("encoding", ["xor", "overwrite", "auto"])
@pytest.mark.parametrize("checksum", ["xxh3-128", "blake3"])
def test_each_version_is_what_the_trainer_had(tmp_path: Path, encoding: str, checksum: str) -> None:
    states = steps(4)
    found = published(tmp_path, states, Options(encoding=encoding, checksum=checksum))

    assert [one.is_full for one in found] == [True, False, False, False]
    assert reader.versions(tmp_path) == [one.name for one in found]
    base = None
    for one, tensors in zip(found, states, strict=True):
        base = reader.read(tmp_path / one.name, base)
        assert base == state(tensors)


def test_a_delta_names_only_what_changed(tmp_path: Path) -> None:
    before = model()
    after = {**before, "layers.0.bias": before["layers.0.bias"] + 1}

    _, delta = published(tmp_path, [before, after])

    assert set(reader.index_of(tmp_path / delta.name)["weight_map"]) == {"layers.0.bias"}


def test_a_version_in_which_nothing_changed_has_only_its_index(tmp_path: Path) -> None:
    _, delta = published(tmp_path, [model(), model()])

    assert [path.name for path in (tmp_path / delta.name).iterdir()] == [
        "model.safetensors.index.json"
    ]
    assert reader.newest(tmp_path) == state(model())


def test_negative_zero_and_nan_are_changes(tmp_path: Path) -> None:
    """They compare otherwise than their bytes."""
    before = {"a": np.array([0.0, 1.0, np.nan], np.float32)}
    after = {"a": np.array([-0.0, 1.0, np.nan], np.float32)}

    published(tmp_path, [before, after])

    assert reader.newest(tmp_path) == state(after)


def test_the_first_version_is_a_delta_of_the_base_model(tmp_path: Path) -> None:
    base, root = tmp_path / "base", tmp_path / "weights"
    name = published(base, [model()])[0].name
    after = stepped(model(), 1)

    (found,) = published(root, [after], Options(base=base / name))

    assert (found.name, found.is_full) == ("weight_v000001", False)
    assert reader.index_of(root / found.name)["metadata"]["base_version"] == "000000"
    assert reader.read(root / found.name, state(model())) == state(after)


def test_a_full_version_comes_each_so_many(tmp_path: Path) -> None:
    found = published(tmp_path, steps(7), Options(anchor_every=3))

    assert [one.is_full for one in found] == [True, False, False, True, False, False, True]


def test_large_models_are_split_into_files_that_their_index_names(tmp_path: Path) -> None:
    (found,) = published(tmp_path, [model()], Options(shard_nbytes=4500))

    names = sorted(path.name for path in (tmp_path / found.name).glob("*.safetensors"))
    assert names == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert reader.newest(tmp_path) == state(model())


def test_a_directory_is_published_with_its_configuration(tmp_path: Path) -> None:
    saved, root = tmp_path / "saved", tmp_path / "weights"
    name = published(saved, [model()])[0].name
    (saved / name / "config.json").write_text("{}")

    with Publisher(root) as publisher:
        full = publisher.publish(saved / name)
        delta = publisher.publish(saved / name)

    assert (full.is_full, delta.is_full) == (True, False)
    files = {path.name for path in (root / full.name).iterdir()}
    assert files >= {"config.json", "STABLE", "model.safetensors.index.json"}
    assert reader.newest(root) == state(model())


def test_directories_may_be_strings(tmp_path: Path) -> None:
    base, root = tmp_path / "base", tmp_path / "weights"
    name = published(base, [model()])[0].name
    (base / name / "config.json").write_text("{}")
    snapshot, files = str(tmp_path / "last"), str(base / name)
    options = Options(snapshot=snapshot, base=files, files=files)

    delta = published(str(root), [stepped(model(), 1)], options)
    with Publisher(str(root), options) as publisher:
        full = publisher.publish(stepped(model(), 2), full=True)

    assert ([one.is_full for one in delta], full.is_full) == ([False], True)
    assert (root / full.name / "config.json").exists()
    assert reader.newest(root) == state(stepped(model(), 2))


def test_engines_of_another_user_may_read_what_a_trainer_with_a_narrow_umask_writes(
    tmp_path: Path,
) -> None:
    before = os.umask(0o077)
    try:
        (found,) = published(tmp_path, [model()], Options(run="run-1"))
    finally:
        os.umask(before)

    folder = tmp_path / "updates" / found.name
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    files = [*folder.iterdir(), tmp_path / "latest"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


def test_a_generator_is_read_once(tmp_path: Path) -> None:
    with Publisher(tmp_path) as publisher:
        publisher.publish(iter(model().items()))
        publisher.publish(iter(stepped(model(), 1).items()))

    assert reader.newest(tmp_path) == state(stepped(model(), 1))


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({"a": np.zeros(3, np.float32)}, "tensor b is missing"),
        ({"a": np.zeros(3), "b": np.zeros(2, np.float32)}, r"F64 \[3\] \(expected F32 \[3\]"),
        ({"b": np.zeros((2, 1), np.float32)}, r"F32 \[2, 1\] \(expected F32 \[2\]"),
        ({"c": np.zeros(3, np.float32)}, "tied to it"),
        ({"a": [1, 2]}, "of type list"),
        ({"a": np.zeros(3, np.complex64)}, "dtype complex64"),
    ],
)
def test_another_model_is_refused_and_the_next_version_is_full(
    tmp_path: Path, after: Tensors, why: str
) -> None:
    before = {"a": np.zeros(3, np.float32), "b": np.ones(2, np.float32)}
    with Publisher(tmp_path) as publisher:
        publisher.publish(before)
        with pytest.raises(PublishError, match=why):
            publisher.publish(after)
        assert [path.name for path in tmp_path.glob("*weight*")] == ["weight_v000001"]
        assert publisher.publish(before).is_full


def test_another_model_may_be_published_in_full(tmp_path: Path) -> None:
    with Publisher(tmp_path) as publisher:
        publisher.publish(model())
        publisher.publish({"a": np.zeros(3)}, full=True)

    assert reader.newest(tmp_path) == state({"a": np.zeros(3)})


def test_a_tensor_that_comes_twice_is_refused(tmp_path: Path) -> None:
    twice = [("a", np.zeros(3)), ("a", np.ones(3))]
    with Publisher(tmp_path) as publisher:
        with pytest.raises(PublishError, match="comes twice"):
            publisher.publish(twice)
        publisher.publish({"a": np.zeros(3)})
        with pytest.raises(PublishError, match="comes twice"):
            publisher.publish(twice)


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    with Publisher(tmp_path) as publisher, pytest.raises(PublishError, match="no tensor"):
        publisher.publish({})

    assert reader.versions(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "gzip"},
        {"checksum": "md5"},
        {"run": "a/b"},
        {"anchor_every": -1},
        {"shard_nbytes": 0},
        {"threads": -1},
    ],
)
def test_an_unknown_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(PublishError, match="expected"):
        Options(**options)  # type: ignore[arg-type]


def test_one_process_at_a_time_publishes_to_a_directory(tmp_path: Path) -> None:
    with Publisher(tmp_path), pytest.raises(PublishError, match="another process publishes"):
        Publisher(tmp_path)
    Publisher(tmp_path).close()


NO_LOCKS = """
import ctypes, pathlib, struct, sys
from rlfleet.publish import Publisher, PublishError

# As on a file system without locks: the kernel answers flock with ENOLCK.
ENOLCK, FLOCK, LOAD, UNLESS, RETURN, ALLOW, ERROR = 37, 73, 0x20, 0x15, 6, 0x7FFF0000, 0x50000
rules = b"".join(
    struct.pack("HBBI", *rule)
    for rule in [(LOAD, 0, 0, 0), (UNLESS, 0, 1, FLOCK), (RETURN, 0, 0, ERROR | ENOLCK),
                 (RETURN, 0, 0, ALLOW)]
)
held = ctypes.create_string_buffer(rules)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(held))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
try:
    Publisher(pathlib.Path(sys.argv[1]))
except PublishError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a system call by its number")
def test_a_file_system_without_locks_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_LOCKS, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert "No locks available; mount the file system with locks" in done.stderr


# --- how small a delta is -----------------------------------------------------------------------


def test_one_percent_of_changed_weights_costs_at_most_two_percent_of_the_bytes(
    tmp_path: Path,
) -> None:
    """As RL steps are: bf16 patterns that move to their neighbour, scattered over all tensors."""
    random = np.random.default_rng(7)
    weights = (random.standard_normal(2**22) * 0.02).astype(np.float32)
    patterns = (weights.view(np.uint32) >> 16).astype(np.uint16)
    picked = random.random(patterns.size) < 0.01
    moved = patterns + np.where(picked, random.choice([-1, 1], patterns.size), 0)
    states = [{"a": patterns}, {"a": moved.astype(np.uint16)}]

    full, delta = published(tmp_path, states)

    files = (tmp_path / delta.name).iterdir()
    assert full.total_nbytes == patterns.nbytes
    assert delta.nbytes <= sum(path.stat().st_size for path in files) <= 0.02 * patterns.nbytes
    assert reader.newest(tmp_path) == state(states[1])


def test_the_smaller_encoding_is_taken_for_each_version(tmp_path: Path) -> None:
    """Few changes in noise that differ in all bits; and all elements by the same bits."""
    random = np.random.default_rng(1)
    before = random.integers(0, 2**32, 2**16, np.uint32)
    dense, sparse = before ^ np.uint32(1), before.copy()
    sparse[::4096] = 0
    encodings = {}
    for name, after in (("dense", dense), ("sparse", sparse)):
        sizes = {
            encoding: published(
                tmp_path / name / encoding,
                [{"a": before}, {"a": after}],
                Options(encoding=encoding),
            )[1].nbytes
            for encoding in ("xor", "overwrite", "auto")
        }
        index = reader.index_of(tmp_path / name / "auto" / "weight_v000002")
        encodings[name] = index["metadata"]["delta_encoding"]
        assert sizes["auto"] == min(sizes.values()), name

    assert encodings["dense"] == "xor"


# --- in a bucket, and the pointer ---------------------------------------------------------------


def test_a_bucket_has_the_same_files_as_a_volume(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    states = steps(3)
    published(tmp_path / "volume", states)
    published(LocalStore(tmp_path / "bucket"), states)

    assert reader.newest(tmp_path / "bucket") == state(states[-1])
    for name in reader.versions(tmp_path / "volume"):
        theirs, ours = (
            {path.name: path.read_bytes() for path in (tmp_path / place / name).iterdir()}
            for place in ("bucket", "volume")
        )
        index = "model.safetensors.index.json"
        theirs.pop(".claimed", None)
        maps = [json.loads(files.pop(index))["weight_map"] for files in (ours, theirs)]
        assert ours == theirs
        assert maps[0] == maps[1]


def test_a_number_with_objects_of_a_crashed_trainer_is_not_used_again() -> None:
    store = obstore.store.MemoryStore()
    obstore.put(store, "weight_v000003/model-00000-of-00001.safetensors", b"half")

    first, second = published(store, steps(2))

    assert (first.version, second.version, second.is_full) == (4, 5, False)
    assert obstore.get(store, "weight_v000003/model-00000-of-00001.safetensors").bytes() == b"half"


def test_two_trainers_in_one_bucket_do_not_mix_their_versions() -> None:
    store = obstore.store.MemoryStore()
    with Publisher(store) as one, Publisher(store) as other:

        def overtaken() -> Iterator[tuple[str, object]]:
            one.publish(model(1))
            yield from model(2).items()

        other.publish(overtaken())

    assert state_in(store, "weight_v000001") == state(model(2))
    assert state_in(store, "weight_v000002") == state(model(1))


def test_of_two_trainers_that_chose_one_number_one_is_refused() -> None:
    found = bucket.opened(obstore.store.MemoryStore(), {}, pointed=False)

    refused = pytest.raises(PublishError, match="exists already")
    with found.draft(1), refused, found.draft(1):
        pass


def state_in(store: obstore.store.MemoryStore, name: str) -> reader.State:
    found = bytes(obstore.get(store, f"{name}/model-00001-of-00001.safetensors").bytes())
    return reader.read_file(found)[0]


def pointer(root: Path) -> str:
    return (root / "latest").read_text()


def test_the_pointer_names_run_and_version_and_moves_with_each(tmp_path: Path) -> None:
    found = []
    with Publisher(tmp_path, Options(run="run-1")) as publisher:
        for tensors in steps(2):
            publisher.publish(tensors)
            found.append(pointer(tmp_path))

    assert found == ["run-1/weight_v000001", "run-1/weight_v000002"]
    assert reader.newest(tmp_path / "updates") == state(steps(2)[-1])


def test_a_run_of_another_name_begins_with_a_full_version_and_a_number_of_its_own(
    tmp_path: Path,
) -> None:
    snapshot = tmp_path / "snapshot"
    published(tmp_path / "store", steps(2), Options(run="one", snapshot=snapshot))
    (found,) = published(tmp_path / "store", [model()], Options(run="two", snapshot=snapshot))

    assert (found.version, found.is_full) == (3, True)
    assert pointer(tmp_path / "store") == "two/weight_v000003"


@pytest.mark.parametrize("kind", ["volume", "bucket"])
@pytest.mark.parametrize("held", ["run-1/weight_v000009", "nonsense"])
def test_the_pointer_moves_only_forward(tmp_path: Path, kind: str, held: str) -> None:
    store = obstore.store.MemoryStore()
    obstore.put(store, "latest", held.encode())
    (tmp_path / "latest").write_text(held)
    target: object = store if kind == "bucket" else tmp_path

    with pytest.raises(PublishError, match="latest"):
        published(target, [model()], Options(run="run-1"))

    assert pointer(tmp_path) == held
    assert bytes(obstore.get(store, "latest").bytes()).decode() == held


def test_the_pointer_in_a_bucket_moves_with_each_version() -> None:
    store = obstore.store.MemoryStore()
    published(store, steps(3), Options(run="run-1"))

    assert bytes(obstore.get(store, "latest").bytes()) == b"run-1/weight_v000003"


# --- any sequence -------------------------------------------------------------------------------


EVENTS = ["step", "same", "full", "restart", "new snapshot", "fail"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(["step", "same", "full", "restart", "new snapshot", "fail"]), max_size=8
    ),
    st.integers(0, 3),
    st.sampled_from(["auto", "xor", "overwrite"]),
)
def test_a_reader_comes_to_the_trainers_bytes_after_any_sequence(
    tmp_path_factory: pytest.TempPathFactory, events: list[str], anchor: int, encoding: str
) -> None:
    folder = tmp_path_factory.mktemp("run")
    tensors = model(rows=8)
    options = Options(snapshot=folder / "snapshot", anchor_every=anchor, encoding=encoding)
    publisher = Publisher(folder / "store", options)
    seen: dict[str, bytes] = {}
    for seed, event in enumerate(["step", *events, "step"]):
        if event in {"restart", "new snapshot"}:
            publisher.close()
            if event == "new snapshot":
                (folder / "snapshot" / "state.json").unlink(missing_ok=True)
            publisher = Publisher(folder / "store", options)
        elif event == "fail":
            with pytest.raises(PublishError):
                publisher.publish({**tensors, "unknown": None})
        else:
            tensors = tensors if event == "same" else stepped(tensors, seed)
            publisher.publish(tensors, full=event == "full")
            assert reader.newest(folder / "store") == state(tensors)
        for name in reader.versions(folder / "store"):
            index = (folder / "store" / name / "model.safetensors.index.json").read_bytes()
            assert seen.setdefault(name, index) == index
    publisher.close()


@pytest.mark.parametrize("encoding", ["auto", "overwrite"])
def test_a_large_tensor_is_published_in_pieces_by_several_threads(
    tmp_path: Path, encoding: str
) -> None:
    """And the encoding that lost is given up on the way."""
    random = np.random.default_rng(3)
    before = {f"{n}": random.integers(0, 9, (5, 2**22), np.uint8) for n in range(5)}
    after = {name: tensor.copy() for name, tensor in before.items()}
    for tensor in after.values():
        tensor[:, :: 2**12] += 1

    published(tmp_path, [before, after], Options(encoding=encoding, threads=2))

    assert reader.newest(tmp_path) == state(after)
