"""One pass digests what a source makes, in whatever order and from whatever thread it comes."""

import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from blake3 import blake3

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.checkpoints.headers import Headers, content_of
from rlfleet_sidecar.checkpoints.manifest import Manifest
from rlfleet_sidecar.checkpoints.safe_paths import OpenFolder
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.staging import cpus, digester, range_copy
from rlfleet_sidecar.staging.prepare_job import PrepareJob, SupersededError
from rlfleet_sidecar.staging.source import Done
from rlfleet_sidecar.staging.staging import Staging
from tests.fakes.checkpoints import SHAPES, header_of, tensor_bytes, write_file, write_shards

_NAN = struct.pack("<H", 0x7FC0)
_LARGE = {"a.weight": (3, 512, 1024), "b.empty": (0, 4), "c.weight": (1024, 1100)}
"""Tensors of several steps, one that ends within a step, and one without a byte."""


class Pieces:
    """A source that writes known bytes in pieces, in any order, from any number of threads."""

    def __init__(
        self, files: Mapping[str, bytes], *, piece: int = 100_000, threads: int = 3, seed: int = 0
    ) -> None:
        self._files = files
        self._threads = threads
        self.pieces = [
            (name, begin, min(begin + piece, len(data)))
            for name, data in files.items()
            for begin in range(0, len(data), piece)
        ]
        self.pieces.sort(key=lambda one: hashlib.sha256(f"{seed} {one}".encode()).digest())
        self.before: Callable[[], object] = lambda: None
        self.ended: list[BaseException | None] = []

    @property
    def sizes(self) -> Mapping[str, int]:
        return {name: len(data) for name, data in self._files.items()}

    def where(self, name: str) -> Path:
        return Path("/store") / name

    def fill(self, draft: Path, done: Done) -> None:
        for name, data in self._files.items():
            with (draft / name).open("xb") as file:
                file.truncate(len(data))
        parts = [self.pieces[number :: self._threads] for number in range(self._threads)]
        threads = [threading.Thread(target=self._part, args=(part, draft, done)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in self.ended:
            if error is not None:
                raise error

    def _part(self, part: list[tuple[str, int, int]], draft: Path, done: Done) -> None:
        try:
            for name, begin, end in part:
                self.before()
                with (draft / name).open("r+b") as file:
                    os.pwrite(file.fileno(), self._files[name][begin:end], begin)
                done(name, begin, end)
        except Exception as error:  # noqa: BLE001 - as a thread of a real source does
            self.ended.append(error)
        else:
            self.ended.append(None)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    folder.mkdir()
    write_shards(folder, 3, 2)
    return folder


@pytest.fixture
def large(tmp_path: Path) -> Path:
    folder = tmp_path / "large"
    folder.mkdir()
    write_file(folder / "model.safetensors", _LARGE, 1)
    return folder


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    (tmp_path / "draft").mkdir()
    return tmp_path / "draft"


def opened(folder: Path) -> OpenFolder:
    return OpenFolder(folder, os.open(folder, os.O_RDONLY), follow=False)


def headers(folder: Path) -> Headers:
    return content_of(opened(folder), float("inf"))


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def work() -> PrepareJob:
    return PrepareJob("v", 60)


def plain(shapes: Mapping[str, tuple[int, ...]], seed: int) -> str:
    """Digest a checkpoint as the contract says, in one go."""
    entries = b""
    offsets = header_of(shapes)
    for name in sorted(shapes):
        begin, end = offsets[name]["data_offsets"]  # type: ignore[index]
        entries += f"{name}\0BF16\0{shapes[name]}\0".encode()
        entries += blake3(tensor_bytes(name, seed, end - begin)).digest()
    return ("blake3:" + blake3(entries).hexdigest())[:64]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("piece", [1_000, 100_000, 2_000_000])
def test_the_digest_is_that_of_the_bytes_whatever_the_order(
    large: Path, draft: Path, seed: int, piece: int
) -> None:
    job = work()
    source = Pieces(files_of(large), piece=piece, seed=seed)

    digest = Staging(headers(large), None, job).of_source(source, draft)

    assert digest == plain(_LARGE, 1)
    assert files_of(draft) == files_of(large)
    assert job.progress.bytes_done == job.progress.bytes_total == sum(source.sizes.values())


def test_a_volume_s_copy_has_the_bytes_and_the_digest(original: Path, draft: Path) -> None:
    content = headers(original)

    digest = Staging(content, None, work()).of_folder(opened(original), draft)

    assert digest == plain(SHAPES, 3)
    assert files_of(draft) == files_of(original)
    assert Staging(content, None, work()).of_folder(opened(original), None) == digest


def test_files_of_many_steps_are_copied_whole(
    large: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_copy, "STEP", 300_001)

    assert Staging(headers(large), None, work()).of_folder(opened(large), draft) == plain(_LARGE, 1)
    assert files_of(draft) == files_of(large)


def test_a_nan_anywhere_ends_the_pass_and_the_source(large: Path, draft: Path) -> None:
    content, files = headers(large), files_of(large)
    data = files["model.safetensors"]
    files["model.safetensors"] = data[:-2] + _NAN
    source = Pieces(files, piece=1_000)

    with pytest.raises(SidecarError, match=r"^/store/model\.safetensors contains NaN") as told:
        Staging(content, None, work()).of_source(source, draft)

    assert told.value.code is Code.CHECKPOINT_INVALID
    assert "tensor c.weight" in told.value.message


def test_another_header_than_the_checked_one_is_refused(large: Path, draft: Path) -> None:
    content = headers(large)
    write_file(large / "model.safetensors", {**_LARGE, "a.weight": (512, 3, 1024)}, 1)
    files = files_of(large)

    with pytest.raises(SidecarError, match=r"tensor a\.weight has changed since the check"):
        Staging(content, None, work()).of_source(Pieces(files), draft)


def hashes_of(folder: Path) -> dict[str, dict[str, str]]:
    return {
        name: {"sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files_of(folder).items()
    }


@pytest.mark.parametrize("is_right", [True, False])
def test_a_manifest_s_hash_is_demanded_of_the_copy(
    original: Path, draft: Path, *, is_right: bool
) -> None:
    hashes = hashes_of(original)
    if not is_right:
        hashes[max(hashes)] = {"sha256": "0" * 64}
    manifest = Manifest(original, "sha256:m", hashes)
    staging = Staging(headers(original), manifest, work())
    source = Pieces(files_of(original), piece=500)

    if is_right:
        assert staging.of_source(source, draft) == plain(SHAPES, 3)
        return
    with pytest.raises(SidecarError, match="expected 0000") as told:
        staging.of_source(source, draft)
    assert told.value.code is Code.DIGEST_MISMATCH


def test_a_byte_that_is_reported_twice_is_a_defect(original: Path, draft: Path) -> None:
    source = Pieces(files_of(original))
    source.pieces.append(source.pieces[0])

    with pytest.raises(ValueError, match="reported twice"):
        Staging(headers(original), None, work()).of_source(source, draft)


def test_a_byte_that_is_never_reported_is_a_defect(original: Path, draft: Path) -> None:
    source = Pieces(files_of(original), piece=1_000)
    source.pieces.pop()

    with pytest.raises(ValueError, match="bytes were reported"):
        Staging(headers(original), None, work()).of_source(source, draft)


def test_a_superseded_pass_ends_every_thread(large: Path, draft: Path) -> None:
    job, before = work(), threading.active_count()
    source = Pieces(files_of(large), piece=1_000)
    left = iter(range(50))

    def supersede() -> None:
        if next(left, None) == 20:
            job.supersede("superseded by another")

    source.before = supersede

    with pytest.raises(SupersededError, match="by another"):
        Staging(headers(large), None, job).of_source(source, draft)

    assert threading.active_count() == before
    assert len(source.ended) == 3


@pytest.mark.parametrize("after", [20, 60, 200])
def test_a_copy_that_is_superseded_ends_every_thread_though_much_is_undigested(
    after: int, large: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that wait for room must not wait for tensors that the failed one never began."""
    for module, name, size in (
        (digester, "_LAG", 64),
        (digester, "_STEP", 8),
        (digester, "_BATCH", 32),
        (range_copy, "STEP", 64),
    ):
        monkeypatch.setattr(module, name, size * 1024)
    monkeypatch.setattr(cpus, "threads", lambda: 4)
    hashes = hashes_of(large)
    job, running = work(), threading.active_count()
    advance, calls = job.advance, iter(range(100_000))

    def advancing(nbytes: int) -> None:
        if next(calls) == after:
            job.supersede("superseded by another")
        advance(nbytes)

    monkeypatch.setattr(job, "advance", advancing)
    staging, raised = Staging(headers(large), Manifest(large, "sha256:m", hashes), job), []

    def copy() -> None:
        try:
            staging.of_folder(opened(large), draft)
        except SupersededError as error:
            raised.append(error)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    thread.join(20)

    assert not thread.is_alive()
    assert len(raised) == 1
    assert threading.active_count() == running


def test_a_pass_stands_still_during_a_change(large: Path, draft: Path) -> None:
    changing, waited = threading.Event(), threading.Event()
    changing.set()

    def yields() -> bool:
        if changing.is_set():
            waited.set()
        return changing.is_set()

    job = PrepareJob("v", 60, yields)
    source = Pieces(files_of(large), piece=10_000)
    written: list[int] = []
    source.before = lambda: written.append(1)
    ended: list[str] = []
    staging = Staging(headers(large), None, job)
    thread = threading.Thread(target=lambda: ended.append(staging.of_source(source, draft)))
    thread.start()
    assert waited.wait(30)

    thread.join(0.3)
    assert thread.is_alive()
    assert len(written) <= 3, "each thread of the source waits at its first report"
    changing.clear()
    thread.join(30)
    assert ended == [plain(_LARGE, 1)]


def test_a_file_that_gets_shorter_during_the_copy_is_damaged(
    large: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_copy, "STEP", 100_000)
    content = headers(large)

    def shorten() -> bool:
        os.truncate(large / "model.safetensors", 500_000)
        return False

    with pytest.raises(SidecarError) as told:
        Staging(content, None, PrepareJob("v", 60, shorten)).of_folder(opened(large), draft)
    assert told.value.code is Code.CHECKPOINT_INVALID
    assert "file ends after 500000 bytes" in told.value.message


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_file_that_is_written_again_during_the_pass_is_refused(
    large: Path, draft: Path, *, is_copied: bool
) -> None:
    content = headers(large)

    def touch() -> bool:
        os.utime(large / "model.safetensors")
        return False

    job = PrepareJob("v", 60, touch)
    with pytest.raises(SidecarError, match="was written again after its check"):
        Staging(content, None, job).of_folder(opened(large), draft if is_copied else None)


def test_progress_has_a_rate_and_the_time_left_from_the_first_byte_on() -> None:
    job = work()
    job.begin(1000)
    assert (job.progress.bytes_per_s, job.progress.left_s) == (None, None)

    time.sleep(0.05)
    job.advance(250)

    found = job.progress
    assert found.bytes_per_s is not None
    assert found.bytes_per_s <= 250 / 0.05, "its first bytes took their time too"
    assert found.left_s == pytest.approx(750 / found.bytes_per_s)
