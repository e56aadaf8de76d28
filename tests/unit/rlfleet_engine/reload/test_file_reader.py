"""What is digested is what is handed on, and only of the files that were checked."""

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from rlfleet_contract.engine.safetensors import BLAKE3, Digest, FileStamp, Tensor
from rlfleet_engine.reload.checked_file import ChangedError
from rlfleet_engine.reload.file_reader import FileReader
from tests.fakes.checkpoints import SHAPES, tensor_bytes, write_file, write_version
from tests.fakes.memory import digest_of


def stamps(directory: Path) -> list[FileStamp]:
    return [
        FileStamp(name=p.name, size=s.st_size, mtime_ns=s.st_mtime_ns, inode=s.st_ino)
        for p in sorted(directory.glob("*.safetensors"))
        for s in [p.stat()]
    ]


@pytest.mark.parametrize("shards", [1, 3])
def test_all_tensors_come_in_name_order_with_their_bytes(tmp_path: Path, shards: int) -> None:
    directory = write_version(tmp_path, "v1", 1, shards=shards)

    with FileReader(str(directory), stamps(directory)) as reader:
        read = [(tensor.name, tensor.shape, bytes(data)) for tensor, data in reader]
        installed = reader.installed()

    assert [name for name, _, _ in read] == sorted(SHAPES)
    for name, shape, data in read:
        assert shape == SHAPES[name]
        assert data == tensor_bytes(name, 1, len(data))
    assert installed.tensors == len(SHAPES)
    assert installed.nbytes == sum(len(data) for _, _, data in read)


def test_some_tensors_are_read_and_no_other(tmp_path: Path) -> None:
    directory = write_version(tmp_path, "v1", 1, shards=3)
    names = sorted(SHAPES)[1:3]

    with FileReader(str(directory), stamps(directory), names={*names, "none"}) as reader:
        read = [tensor.name for tensor, _ in reader]
        nbytes = reader.installed().nbytes

    assert read == names
    assert 0 < nbytes < sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def test_the_digest_is_of_the_tensors_and_not_of_their_files(tmp_path: Path) -> None:
    one = digest_of(write_version(tmp_path, "one", 1))
    sharded = digest_of(write_version(tmp_path, "sharded", 1, shards=4))
    other = digest_of(write_version(tmp_path, "other", 2))

    assert one == sharded != other


def test_the_digest_minds_everything_but_the_order_in_which_tensors_come() -> None:
    def digest(*tensors: tuple[str, str, tuple[int, ...], bytes]) -> str:
        made = Digest()
        for name, dtype, shape, data in tensors:
            made.add(Tensor(name, dtype, shape, 0, len(data)), BLAKE3.new(data).digest())
        return made.hexdigest()

    a, b = ("a", "U8", (2,), b"xy"), ("b", "U8", (1,), b"z")

    assert digest(a, b) == digest(b, a)
    others = [
        digest(a),
        digest(a, ("b", "I8", (1,), b"z")),
        digest(a, ("b", "U8", (1, 1), b"z")),
        digest(a, ("b", "U8", (1,), b"y")),
        digest(("a", "U8", (2,), b"z"), ("b", "U8", (1,), b"xy")),
    ]
    assert len({digest(a, b), *others}) == 1 + len(others)


def test_a_file_that_is_not_the_checked_one_is_refused_before_any_tensor(tmp_path: Path) -> None:
    directory = write_version(tmp_path, "v1", 1)
    checked = stamps(directory)
    write_version(tmp_path, "v1", 2)

    with (
        pytest.raises(ChangedError, match=r"model\.safetensors"),
        FileReader(str(directory), checked),
    ):
        pytest.fail("it was opened")


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    directory = write_version(tmp_path, "v1", 1)
    with FileReader(str(directory), stamps(directory)) as reader:
        list(reader)
        write_version(tmp_path, "v1", 2)

        with pytest.raises(ChangedError):
            reader.installed()


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    directory = write_version(tmp_path, "v1", 1)
    with FileReader(str(directory), stamps(directory)) as reader:
        (directory / "model.safetensors").write_bytes(b"")

        with pytest.raises(ChangedError, match="shorter"):
            list(reader)


def test_what_was_not_asked_for_is_not_counted(tmp_path: Path) -> None:
    directory = write_version(tmp_path, "v1", 1)
    with FileReader(str(directory), stamps(directory)) as reader:
        for _tensor in reader:
            break

        assert reader.installed().tensors == 1


def peak_of(directory: Path, ahead_bytes: int) -> int:
    """Read a version tensor by tensor; return the most bytes that were in memory at once."""
    found = stamps(directory)
    tracemalloc.start()
    try:
        with FileReader(str(directory), found, ahead_bytes) as reader:
            for _tensor, _data in reader:
                # A consumer that is slow: whatever may be read ahead is read by now.
                time.sleep(0.005)
                del _data
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_read_ahead_is_bounded_by_bytes(tmp_path: Path) -> None:
    large = 2_000_000
    shapes = {f"experts.{place}": (large // 2,) for place in range(6)}
    directory = tmp_path / "v1"
    directory.mkdir()
    write_file(directory / "model.safetensors", shapes, 1)

    assert peak_of(directory, ahead_bytes=large // 2) < 1.5 * large
    assert peak_of(directory, ahead_bytes=2 * large) > 2.5 * large


def test_a_missing_file_leaves_nothing_open(tmp_path: Path) -> None:
    directory = write_version(tmp_path, "v1", 1)
    ghost = FileStamp(name="ghost.safetensors", size=1, mtime_ns=1, inode=1)

    with pytest.raises(FileNotFoundError), FileReader(str(directory), [*stamps(directory), ghost]):
        pytest.fail("it was opened")

    # Not their number: the interpreter closes others at any moment.
    opened = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
    assert not [path for path in opened if path.startswith(str(directory))]
