"""Deltas that a trainer published into a bucket."""

from pathlib import Path

import numpy as np
import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.settings import SidecarSettings
from tests.fakes.checkpoints import write_file
from tests.fakes.deltas.indexed import write_delta
from tests.fakes.deltas.tensors import tensors_of, trained
from tests.integration.stores.conftest import Upload
from tests.integration.stores.proxy import StoreProxy
from tests.integration.stores.test_versions_in_stores import prepared, refusal

pytestmark = pytest.mark.integration


def test_a_chain_of_deltas_is_built_from_a_store(
    settings: SidecarSettings, tmp_path: Path, upload: Upload
) -> None:
    tensors = tensors_of(settings.model_path)
    for number in (1, 2):
        new = trained(tensors, seed=number)
        upload(write_delta(tmp_path / "trainer", number, tensors, new))
        tensors = new

    found = prepared(settings, "weight_v000002")

    assert tensors_of(found.directory) == tensors


def test_a_delta_of_many_tensors_takes_few_requests(
    settings: SidecarSettings, tmp_path: Path, upload: Upload, proxy: StoreProxy
) -> None:
    """Each tensor's frame has a header, which is checked before anything is applied."""
    shapes = {f"layers.{number}.weight": (96, 64) for number in range(200)} | {"big": (1024, 4096)}
    write_file(settings.model_path / "model.safetensors", shapes, seed=0)
    tensors = tensors_of(settings.model_path)
    random = np.random.default_rng(1)
    new = {
        name: (np.frombuffer(data, np.uint8) ^ random.integers(0, 8, len(data), np.uint8)).tobytes()
        for name, data in tensors.items()
    }
    folder = write_delta(tmp_path / "trainer", 1, tensors, new)
    upload(folder)

    found = prepared(settings, "weight_v000001")

    assert tensors_of(found.directory) == new
    (payload,) = folder.glob("model-*.safetensors")
    gets = [line for line in proxy.seen if line.startswith("GET") and payload.name in line]
    assert payload.stat().st_size > 3 * 2**20
    assert len(gets) < len(shapes) * 1.5
    assert sum(proxy.sent[line] for line in set(gets)) < 2.1 * payload.stat().st_size


def test_a_delta_whose_base_is_missing_is_waited_for(
    settings: SidecarSettings, tmp_path: Path, upload: Upload
) -> None:
    tensors = tensors_of(settings.model_path)
    upload(write_delta(tmp_path / "trainer", 2, tensors, trained(tensors, seed=2)))

    assert refusal(settings, "weight_v000002").code is Code.CHECKPOINT_INCOMPLETE
