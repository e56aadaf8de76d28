"""A sidecar that dies while it applies a delta leaves its copies as they were."""

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from tests.fakes.checkpoints import write_model
from tests.fakes.deltas.indexed import write_chain
from tests.fakes.deltas.tensors import Tensors, tensors_of

ONE, TWO = "weight_v000001", "weight_v000002"
_DYING = """
import sys
from pathlib import Path
from tests.unit.rlfleet_sidecar.cache.test_delta_crash import TWO, prepare, settings_of, store_of

# Once some bytes are written, it waits for ever, as for a change that has the disk.
looks = iter(range(6))
prepare(store_of(settings_of(Path(sys.argv[1]))), TWO, lambda: next(looks, None) is None)
"""


def settings_of(room: Path) -> SidecarSettings:
    return SidecarSettings(
        model_name="fake",
        model_path=room / "model",
        weights_path=f"{room}/weights/{{version}}",
        cache_dir=room / "cache",
        cache_spare=0,
    )


def store_of(settings: SidecarSettings) -> VersionStore:
    return VersionStore(settings, Checkpoints(settings))


def prepare(store: VersionStore, version: str, yields: Callable[[], bool] = bool) -> bool:
    request = PrepareRequest(operation="o", version=version, wait_s=0)
    return store.prepare(PrepareJob(version, 60, yields), request, frozenset)


@pytest.fixture
def states(tmp_path: Path) -> list[Tensors]:
    base = tensors_of(write_model(tmp_path / "model", seed=0))
    return write_chain(tmp_path / "weights", base, 2)


def test_a_sidecar_killed_while_it_applies_a_delta_leaves_nothing(
    tmp_path: Path, states: list[Tensors]
) -> None:
    settings = settings_of(tmp_path)
    assert prepare(store_of(settings), ONE)
    versions = tmp_path / "cache" / "versions"
    before = (versions / ONE / "model.safetensors").read_bytes()
    argv = [sys.executable, "-c", _DYING, str(tmp_path)]
    with subprocess.Popen(argv) as dying:
        wait_for_a_draft(versions)
        dying.kill()
    assert min(path.name for path in versions.iterdir()).startswith(".draft-")

    store = store_of(settings)

    assert [path.name for path in versions.iterdir()] == [ONE]
    assert (versions / ONE / "model.safetensors").read_bytes() == before
    assert prepare(store, TWO)
    assert tensors_of(versions / TWO) == states[2]


def wait_for_a_draft(versions: Path) -> None:
    end = time.monotonic() + 60
    while not list(versions.glob(".draft-*/*.safetensors")):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_superseded_prepare_of_a_delta_leaves_nothing(
    tmp_path: Path, states: list[Tensors]
) -> None:
    store = store_of(settings_of(tmp_path))
    work: PrepareJob

    def yields() -> bool:
        work.supersede("another one")
        return False

    work = PrepareJob(TWO, 60, yields)

    with pytest.raises(SidecarError, match="another one"):
        store.prepare(work, PrepareRequest(operation="o", version=TWO, wait_s=0), frozenset)

    assert list((tmp_path / "cache" / "versions").iterdir()) == []
    assert prepare(store, TWO)
    assert tensors_of(tmp_path / "cache" / "versions" / TWO) == states[2]


def test_a_rejected_delta_is_not_read_again_for_the_same_operation(
    tmp_path: Path, states: list[Tensors]
) -> None:
    assert len(states) == 3
    store = store_of(settings_of(tmp_path))
    (tmp_path / "model" / "model.safetensors").unlink()
    write_model(tmp_path / "model", seed=8)
    with pytest.raises(SidecarError, match="began with this fleet's base model") as first:
        prepare(store, TWO)
    looks = count()

    with pytest.raises(SidecarError) as second:
        prepare(store, TWO, lambda: next(looks) < 0)

    assert (second.value.message, next(looks)) == (first.value.message, 0)
