"""What a preload holds is what a reload installs, and without one it reads the files."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from shutil import rmtree

import pytest

from rlfleet_contract.engine.rank_report import Installed
from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_engine.reload.checked_file import ChangedError
from rlfleet_engine.reload.file_reader import FileReader
from rlfleet_engine.reload.free_memory import FreeMemory
from rlfleet_engine.reload.held import HeldFile
from rlfleet_engine.reload.preload import Preload, begun, ended
from rlfleet_engine.reload.word_sum import word_sum
from tests.fakes.checkpoints import BF16_BYTES, SHAPES, tensor_bytes, write_version
from tests.fakes.memory import digest_of, stamps_of

PLENTY = FreeMemory(1 << 40, 1 << 40)
ROOM = 1 << 20


@pytest.fixture
def version(tmp_path: Path) -> Path:
    return write_version(tmp_path, "v1", 1, shards=3)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Preload]]:
    made: list[Preload] = []

    def begin(
        directory: Path, memory: FreeMemory | None = PLENTY, rooms: Sequence[int] = ()
    ) -> Preload:
        of = str(directory), stamps_of(directory), tmp_path / "shared"
        made.append(Preload(*of, is_doubled=True, rooms=rooms, look=lambda: memory))
        return made[-1]

    yield begin
    for one in made:
        one.end()


def over(preload: Preload) -> Preload:
    """Wait until nothing more is read."""
    return until(preload, lambda: not preload.report.is_reading)


def until(preload: Preload, is_so: Callable[[], bool]) -> Preload:
    limit = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.005)
    return preload


def installed(
    directory: Path,
    files: Sequence[FileStamp],
    preload: Preload | None,
    only: Callable[[str], bool] = lambda _name: True,
) -> tuple[dict[str, bytes], Installed]:
    """Load as the extension does, with the held tensors that ``only`` names."""
    with ended(preload, str(directory), files) as taken:
        some = {
            name: HeldFile(file.tensors, {n: one for n, one in file.held.items() if only(n)})
            for name, file in taken.files.items()
        }
        with FileReader(str(directory), files, held=some) as reader:
            read = {tensor.name: bytes(data) for tensor, data in reader}
            return read, reader.installed()


def expected(seed: int) -> dict[str, bytes]:
    return {name: tensor_bytes(name, seed, BF16_BYTES * prod(SHAPES[name])) for name in SHAPES}


def test_what_was_preloaded_is_installed_without_the_files(
    version: Path, begin: Callable[..., Preload]
) -> None:
    files, digest = stamps_of(version), digest_of(version)
    preload = over(begin(version))
    rmtree(version)

    read, told = installed(version, files, preload)

    assert read == expected(1)
    assert (told.digest, told.tensors) == (digest, len(SHAPES))
    assert told.preloaded == told.nbytes == preload.report.total


def test_what_is_preloaded_was_summed_too(version: Path, begin: Callable[..., Preload]) -> None:
    files, preload = stamps_of(version), over(begin(version))

    with ended(preload, str(version), files) as taken, FileReader(str(version), files) as bare:
        with FileReader(str(version), files, held=taken.files) as reader:
            sums = {
                tensor.name: (reader.word_sum(tensor.name), word_sum(d)) for tensor, d in reader
            }
        unknown = {bare.word_sum(name) for name in SHAPES}

    assert sums.keys() == SHAPES.keys()
    assert all(known == right for known, right in sums.values())
    assert unknown == {None}


def test_a_file_that_is_spoilt_after_the_preload_changes_nothing(
    version: Path, begin: Callable[..., Preload]
) -> None:
    files, digest = stamps_of(version), digest_of(version)
    preload = over(begin(version))
    for stamp in files:
        path = version / stamp.name
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"?")
        os.utime(path, ns=(stamp.mtime_ns, stamp.mtime_ns))

    read, told = installed(version, files, preload)

    assert read == expected(1)
    assert told.digest == digest != digest_of(version)


@pytest.mark.parametrize("part", ["model.layers.0", "lm_head", "nothing"])
def test_a_reload_reads_what_is_not_preloaded(
    version: Path, begin: Callable[..., Preload], part: str
) -> None:
    preload = over(begin(version))
    digest = digest_of(version)

    read, told = installed(version, stamps_of(version), preload, lambda n: n.startswith(part))

    assert (read, told.digest) == (expected(1), digest)
    assert told.preloaded == sum(len(d) for name, d in read.items() if name.startswith(part))


def test_a_reload_that_comes_early_takes_what_there_is(
    version: Path, begin: Callable[..., Preload]
) -> None:
    digest = digest_of(version)

    read, told = installed(version, stamps_of(version), begin(version))

    assert (read, told.digest) == (expected(1), digest)


def test_a_preload_of_other_files_is_ended_before_the_load(
    version: Path, tmp_path: Path, begin: Callable[..., Preload]
) -> None:
    other = write_version(tmp_path, "v2", 2, shards=3)
    preload = over(begin(other))

    read, told = installed(version, stamps_of(version), preload)

    assert (read, told.preloaded) == (expected(1), 0)
    until(preload, lambda: preload.report.nbytes == 0)


@pytest.mark.parametrize("memory", [None, FreeMemory(0, 1 << 40)])
def test_without_memory_nothing_is_preloaded(
    version: Path, begin: Callable[..., Preload], memory: FreeMemory | None
) -> None:
    preload = over(begin(version, memory))

    assert "memory" in str(preload.report.why)
    assert preload.report.nbytes == 0
    assert installed(version, stamps_of(version), preload)[0] == expected(1)


def test_memory_must_be_enough_for_the_reload_too(
    version: Path, begin: Callable[..., Preload]
) -> None:
    total = sum(len(data) for data in expected(1).values())

    once = over(begin(version, FreeMemory(total * 3 // 2, total * 3 // 2)))

    assert "too little memory" in str(once.report.why)


def test_a_file_that_is_not_the_checked_one_is_not_preloaded(
    version: Path, tmp_path: Path, begin: Callable[..., Preload]
) -> None:
    files = stamps_of(version)
    write_version(tmp_path, "v1", 2, shards=3)
    preload = Preload(
        str(version), files, tmp_path / "shared", is_doubled=True, look=lambda: PLENTY
    )

    assert "changed after its check" in str(over(preload).report.why)
    with pytest.raises(ChangedError):
        installed(version, files, preload)


def test_a_newer_preload_replaces_an_older_one_and_the_same_does_not(
    version: Path, tmp_path: Path, begin: Callable[..., Preload]
) -> None:
    other, folder = write_version(tmp_path, "v2", 2), tmp_path / "shared"
    first = over(begin(version))

    same = begun(first, str(version), stamps_of(version), folder, is_doubled=False)
    newer = begun(first, str(other), stamps_of(other), folder, is_doubled=False)

    assert same is first
    assert newer is not first
    until(first, lambda: first.report.nbytes == 0)
    assert installed(other, stamps_of(other), over(newer))[0] == expected(2)


def test_a_preload_that_failed_is_tried_again(
    version: Path, tmp_path: Path, begin: Callable[..., Preload]
) -> None:
    failed = over(begin(version, None))

    again = begun(failed, str(version), stamps_of(version), tmp_path / "shared", is_doubled=False)

    assert over(again).report.nbytes == again.report.total > 0
    again.end()


def test_memory_is_given_back_after_the_reload(
    version: Path, begin: Callable[..., Preload]
) -> None:
    preload = over(begin(version))
    assert maps(preload) == len(stamps_of(version))

    installed(version, stamps_of(version), preload)

    until(preload, lambda: maps(preload) == 0)


def test_zeroed_memory_waits_for_the_reload(version: Path, begin: Callable[..., Preload]) -> None:
    preload = over(begin(version, rooms=[ROOM, ROOM]))

    with ended(preload, str(version), stamps_of(version)) as taken:
        blocks = [taken.zeroed.take(ROOM) for _ in range(3)]

    assert [block is None for block in blocks] == [False, False, True]
    assert all(bytes(block) == bytes(ROOM) for block in blocks if block is not None)
    until(preload, lambda: taken.zeroed.nbytes == 0)


def test_without_a_preload_there_is_no_zeroed_memory(version: Path) -> None:
    with ended(None, str(version), stamps_of(version)) as taken:
        assert taken.zeroed.take(ROOM) is None


def test_zeroed_memory_counts_as_what_the_reload_needs(
    version: Path, begin: Callable[..., Preload]
) -> None:
    """Else a preload that fitted would be given up for memory that it has itself."""
    total = sum(len(data) for data in expected(1).values())
    # Once there are the copies and the zeroed memory, only the reserve must be left.
    memory = [FreeMemory(1 << 40, total * 100)]
    preload = Preload(
        str(version),
        stamps_of(version),
        version.parent / "shared",
        is_doubled=True,
        rooms=[total],
        look=lambda: memory[0],
        look_s=0.01,
    )
    over(preload)
    assert preload.report.zeroed == total

    memory[0] = FreeMemory(total * 5, total * 100)
    time.sleep(0.2)
    assert preload.report.why is None
    memory[0] = FreeMemory(total * 5 - 1, total * 100)
    until(preload, lambda: "too little memory" in str(preload.report.why))
    until(preload, lambda: preload.report.zeroed == 0)


def test_ranks_share_one_copy(version: Path, begin: Callable[..., Preload]) -> None:
    ranks = [over(begin(version)), over(begin(version))]

    assert maps(ranks[0]) == 2 * len(stamps_of(version))
    assert len({fields[4] for fields in copies(ranks[0])}) == len(stamps_of(version))
    for rank in ranks:
        assert installed(version, stamps_of(version), rank)[0] == expected(1)


def copies(preload: Preload) -> list[list[str]]:
    """Return the mappings of its copies in this process, as fields."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split() for line in lines if f"memfd:rlfleet-{preload.key}-" in line]


def maps(preload: Preload) -> int:
    return len(copies(preload))
