"""What lies whole in the cache is held though the trainer's volume does not answer."""

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from rlfleet_contract.engine.safetensors import FileStamp
from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_contract.worker.lora import LoadAdapterRequest
from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.cache.eviction import footprint
from rlfleet_sidecar.cache.prepare import Preparation
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.checkpoints.folder import Folder
from rlfleet_sidecar.checkpoints.headers import Headers
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.lora.cache import LoRACache
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from rlfleet_sidecar.state.journal import Journal
from rlfleet_sidecar.state.required_tensors import RequiredTensors
from rlfleet_sidecar.timeouts import Glance
from tests.fakes.adapters import write_adapter
from tests.fakes.checkpoints import HIDDEN, VOCABULARY, write_model, write_version
from tests.fakes.deltas.indexed import write_chain
from tests.fakes.deltas.tensors import tensors_of

VERSION = "step-1"
REQUEST = PrepareRequest(operation="o", version=VERSION, wait_s=0)
SECOND = PrepareRequest(operation="o", version="step-2", wait_s=0)


class Volume(Checkpoints):
    """Checkpoints on a volume that can fail."""

    def __init__(self, settings: SidecarSettings) -> None:
        super().__init__(settings)
        self.look: Callable[[], object] = lambda: None
        self.check: Callable[[], object] = lambda: None
        """Called once a version is checked."""

    @contextmanager
    def checked(
        self, version: str, *, is_committed: bool = False
    ) -> Iterator[tuple[Folder, Headers]]:
        with super().checked(version, is_committed=is_committed) as found:
            self.check()
            yield found

    def is_rewritten(self, version: str, files: Sequence[FileStamp]) -> bool:
        self.look()
        return super().is_rewritten(version, files)


@pytest.fixture
def settings(tmp_path: Path) -> SidecarSettings:
    write_version(tmp_path / "weights", VERSION, seed=1)
    return SidecarSettings(
        model_name="fake",
        model_path=write_model(tmp_path / "model", seed=0),
        weights_path=f"{tmp_path}/weights/{{version}}",
        cache_dir=tmp_path / "cache",
        cache_spare=0,
    )


@pytest.fixture
def volume(settings: SidecarSettings) -> Volume:
    return Volume(settings)


@pytest.fixture
def store(settings: SidecarSettings, volume: Volume) -> VersionStore:
    made = VersionStore(settings, volume, glance=Glance(patience_s=0.2))
    assert made.prepare(PrepareJob(VERSION, 30), REQUEST, frozenset)
    return made


@pytest.fixture
def gone() -> Iterator[threading.Event]:
    """Set when the volume's server is back."""
    event = threading.Event()
    yield event
    event.set()


def prepared(store: VersionStore) -> bool:
    return store.prepare(PrepareJob(VERSION, 30), REQUEST, frozenset)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENOTCONN])
def test_a_version_in_the_cache_is_held_though_its_volume_fails(
    store: VersionStore, volume: Volume, number: int
) -> None:
    def fail() -> None:
        raise OSError(number, "the volume")

    volume.look = fail

    assert prepared(store) is False


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_file_system_may_have_run_out_of_space_or_of_inodes(
    store: VersionStore, volume: Volume, tmp_path: Path, number: int
) -> None:
    def fail() -> None:
        raise OSError(number, "the cache")

    write_version(tmp_path / "weights", "step-2", seed=2)

    volume.check = fail

    with pytest.raises(SidecarError, match="no space or inodes left") as caught:
        store.prepare(PrepareJob("step-2", 30), SECOND, frozenset)

    assert caught.value.code is Code.CACHE_FULL


def test_a_version_in_the_cache_is_held_though_its_volume_is_silent(
    store: VersionStore, volume: Volume, gone: threading.Event
) -> None:
    volume.look = gone.wait
    begun = time.monotonic()

    assert prepared(store) is False
    assert time.monotonic() - begun < 10


def test_a_copy_that_another_release_digested_is_staged_again(
    store: VersionStore, settings: SidecarSettings, volume: Volume, tmp_path: Path
) -> None:
    record = tmp_path / "cache" / "versions" / VERSION / ".record.json"
    record.write_text(record.read_text().replace("blake3:", ""))

    later = VersionStore(settings, volume)

    assert later.present(VERSION) is None
    assert later.prepare(PrepareJob(VERSION, 30), REQUEST, frozenset)
    assert "blake3:" in record.read_text()


def test_a_version_that_was_rewritten_is_read_again(store: VersionStore, tmp_path: Path) -> None:
    write_version(tmp_path / "weights", VERSION, seed=2)

    assert prepared(store) is True


def test_a_version_that_was_saved_again_in_other_files_is_read_again(
    store: VersionStore, tmp_path: Path
) -> None:
    (tmp_path / "weights" / VERSION / "model.safetensors").unlink()
    write_version(tmp_path / "weights", VERSION, seed=2, shards=2)

    assert prepared(store) is True


def test_a_version_that_was_saved_again_next_to_its_old_file_is_looked_at_again(
    store: VersionStore, tmp_path: Path
) -> None:
    write_version(tmp_path / "weights", VERSION, seed=2, shards=2)

    with pytest.raises(SidecarError, match="not listed in the index"):
        prepared(store)


def test_a_version_in_shards_is_held(store: VersionStore, tmp_path: Path) -> None:
    write_version(tmp_path / "weights", SECOND.version, seed=2, shards=2)

    for is_new in (True, False):
        assert store.prepare(PrepareJob(SECOND.version, 30), SECOND, frozenset) is is_new


def test_a_thread_that_hangs_takes_no_room_from_the_next_version(
    settings: SidecarSettings, tmp_path: Path
) -> None:
    write_version(tmp_path / "weights", SECOND.version, seed=2)
    third = PrepareRequest(operation="o", version="step-3", wait_s=0)
    write_version(tmp_path / "weights", third.version, seed=3)
    size = footprint([(tmp_path / "weights" / VERSION / "model.safetensors").stat().st_size])
    tight = settings.model_copy(update={"cache_bytes": 2 * size})
    store = VersionStore(tight, Checkpoints(tight))
    assert prepared(store)
    made: list[bool] = []

    def yields() -> bool:
        if not made:
            made.append(False)
            job = PrepareJob(third.version, 30)
            made[0] = store.prepare(job, third, lambda: frozenset({VERSION}))
        return False

    work = PrepareJob(SECOND.version, 30, yields)
    assert store.prepare(work, SECOND, lambda: frozenset({VERSION}))

    assert made == [True]


@pytest.mark.parametrize("left", ["", "adapter_model.safetensors"])
def test_a_version_whose_files_were_deleted_is_held(
    store: VersionStore, tmp_path: Path, left: str
) -> None:
    weights = tmp_path / "weights" / VERSION / "model.safetensors"
    if left:
        # It lay there before, and is no part of the version.
        shutil.copy(weights, weights.with_name(left))
        os.utime(weights.with_name(left), ns=(1, 1))
    weights.unlink()

    assert prepared(store) is False


@pytest.mark.parametrize("text", ["", "the newest"])
def test_a_version_of_a_series_in_the_cache_is_held_though_its_pointer_is_malformed(
    settings: SidecarSettings, tmp_path: Path, text: str
) -> None:
    base = tensors_of(tmp_path / "model")
    updates = tmp_path / "store" / "updates"
    updates.mkdir(parents=True)
    write_chain(updates, base, 1)
    (tmp_path / "store" / "latest").write_text("run-1/weight_v000001")
    stitch = settings.model_copy(update={"weights_path": f"{updates}/{{version}}"})
    store = VersionStore(stitch, Checkpoints(stitch))
    request = PrepareRequest(operation="o", version="weight_v000001", wait_s=0)
    assert store.prepare(PrepareJob("weight_v000001", 30), request, frozenset)

    (tmp_path / "store" / "latest").write_text(text)

    assert store.prepare(PrepareJob("weight_v000001", 30), request, frozenset) is False


def test_a_prepare_that_is_superseded_during_its_check_evicts_nothing(
    store: VersionStore, volume: Volume, tmp_path: Path
) -> None:
    write_version(tmp_path / "weights", SECOND.version, seed=2)
    work = PrepareJob(SECOND.version, 30)
    volume.check = lambda: work.supersede("another one")

    with pytest.raises(SidecarError, match="another one"):
        store.prepare(work, SECOND, frozenset)

    assert store.staged() == [VERSION]


def test_what_comes_into_use_during_a_check_is_not_evicted(
    store: VersionStore, volume: Volume, tmp_path: Path
) -> None:
    write_version(tmp_path / "weights", SECOND.version, seed=2)
    in_use: set[str] = set()
    volume.check = lambda: in_use.add(VERSION)

    assert store.prepare(PrepareJob(SECOND.version, 30), SECOND, lambda: frozenset(in_use))

    assert store.staged() == [SECOND.version, VERSION]


def test_a_volume_that_hangs_has_one_look_at_it_and_is_looked_at_again_when_it_is_back(
    gone: threading.Event,
) -> None:
    glance, looks = Glance(patience_s=0.02), 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        gone.wait()
        return True

    assert [glance.sees(look) for _ in range(3)] == [False] * 3
    assert looks == 1
    gone.set()
    while not glance.sees(look):
        time.sleep(0.01)
    assert looks == 2


def test_a_defect_in_a_look_is_no_sign_of_the_volume() -> None:
    with pytest.raises(ZeroDivisionError):
        Glance().sees(lambda: bool(1 // 0))


async def test_a_prepare_that_fails_by_a_defect_is_in_the_report(
    settings: SidecarSettings, volume: Volume, store: VersionStore, tmp_path: Path
) -> None:
    volume.look = partial(int, "a defect")
    journal = Journal(tmp_path)

    async def preload(work: PrepareJob) -> None:
        raise AssertionError(f"{work.version} was staged")

    preparation = Preparation(store, journal, frozenset, lambda: False, preload)

    with pytest.raises(SidecarError, match="ValueError"):
        await preparation.join(REQUEST)

    assert journal.record.refusal is not None
    assert (journal.record.refusal.code, journal.record.refusal.version) == (Code.INTERNAL, VERSION)
    assert journal.record.refusal.retryable


def test_what_a_prepare_is_about_to_write_is_not_free(
    settings: SidecarSettings, tmp_path: Path
) -> None:
    tight = settings.model_copy(update={"cache_bytes": 1_000_000})
    store = VersionStore(tight, Checkpoints(tight))
    assert prepared(store)
    before = store.free(0)
    during: list[int] = []
    write_version(tmp_path / "weights", SECOND.version, seed=2)

    def yields() -> bool:
        during.append(store.free(0))
        return False

    work = PrepareJob(SECOND.version, 30, yields)
    assert store.prepare(work, SECOND, lambda: frozenset({VERSION}))

    taken = before - store.free(0)
    assert taken > 0
    assert before - during[0] == taken


def test_an_adapter_that_is_copied_is_not_free(settings: SidecarSettings, tmp_path: Path) -> None:
    tight = settings.model_copy(update={"cache_bytes": 1_000_000})
    checkpoints = Checkpoints(tight)
    copies = LoRACache(tight, checkpoints)
    store = VersionStore(tight, checkpoints, copies.nbytes)
    before = store.free(0)
    directory = write_adapter(tmp_path / "weights" / "adapters" / "v1", seed=1)
    request = LoadAdapterRequest(operation="o", name="a", version="v1", path=str(directory))
    during: list[int] = []

    def yields() -> bool:
        during.append(store.free(0))
        return False

    copies.take(request, PrepareJob("v1", 30, yields), store.free)

    taken = before - store.free(0)
    assert taken > 0
    assert before - during[0] == taken


def tying(settings: SidecarSettings) -> Checkpoints:
    """Return checkpoints for an engine that has reported a tied head."""
    needs = RequiredTensors("boot", ("lm_head.weight",), tied=True)
    return Checkpoints(settings, lambda: needs)


@pytest.mark.parametrize("has_cache", [True, False])
def test_a_head_that_differs_from_the_embeddings_is_rejected_where_they_are_tied(
    settings: SidecarSettings, *, has_cache: bool
) -> None:
    if not has_cache:
        settings = settings.model_copy(update={"cache_dir": None})
    store = VersionStore(settings, tying(settings))

    with pytest.raises(SidecarError, match=r"differs from model\.embed_tokens\.weight"):
        prepared(store)

    assert store.staged() == []
    assert prepared(VersionStore(settings, Checkpoints(settings)))


def test_a_head_with_the_bytes_of_the_embeddings_is_accepted_where_they_are_tied(
    settings: SidecarSettings, tmp_path: Path
) -> None:
    path = tmp_path / "weights" / VERSION / "model.safetensors"
    data = bytearray(path.read_bytes())
    begin, size = 8 + int.from_bytes(data[:8], "little"), 2 * VOCABULARY * HIDDEN
    data[begin + size : begin + 2 * size] = data[begin : begin + size]
    path.write_bytes(data)

    assert prepared(VersionStore(settings, tying(settings)))


def test_a_head_of_another_dtype_than_the_embeddings_is_rejected_where_they_are_tied(
    settings: SidecarSettings, tmp_path: Path
) -> None:
    path = tmp_path / "weights" / VERSION / "model.safetensors"
    data = path.read_bytes()
    begin, size = 8 + int.from_bytes(data[:8], "little"), 2 * VOCABULARY * HIDDEN
    head = b"".join(b"\0\0" + data[at : at + 2] for at in range(begin, begin + size, 2))
    header = json.loads(data[8:begin])
    for name, entry in header.items():
        if name != "__metadata__":
            entry["data_offsets"] = [offset + size for offset in entry["data_offsets"]]
    header["lm_head.weight"] |= {"dtype": "F32", "data_offsets": [0, 2 * size]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + head + data[begin + size :])

    with pytest.raises(SidecarError, match=r"differs from model\.embed_tokens\.weight"):
        prepared(VersionStore(settings, tying(settings)))

    assert prepared(VersionStore(settings, Checkpoints(settings)))


def test_a_cache_that_cannot_be_written_is_named_and_not_the_volume(
    settings: SidecarSettings, volume: Volume, tmp_path: Path
) -> None:
    made = VersionStore(settings, volume)
    # As for the owner of another user's directory; the tests may run as root.
    shutil.rmtree(tmp_path / "cache" / "versions")
    (tmp_path / "cache" / "versions").touch()

    said = set()
    for _ in range(2):
        with pytest.raises(SidecarError, match=r"into the cache: .*Not a directory") as caught:
            made.prepare(PrepareJob(VERSION, 30), REQUEST, frozenset)
        assert caught.value.code is Code.CHECKPOINT_UNREADABLE
        said.add(caught.value.message)

    (message,) = said
    assert "volume" not in message


def test_a_cache_that_turns_read_only_is_no_defect_of_the_sidecar(
    store: VersionStore, tmp_path: Path
) -> None:
    prepared(store)
    used = tmp_path / "cache" / "versions" / VERSION / ".used"
    # Root may write whatever its mode says, but no link without an end.
    used.symlink_to(used.name)

    store.note_served(VERSION)

    assert store.present(VERSION)
