"""On a file system with reflinks a copy of a version takes no space, and is private all the same.

Needs root, and a kernel that mounts files: skipped without them. The suite installs mkfs.
"""

import fcntl
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob
from tests.fakes.checkpoints import BF16_BYTES, CONFIG, write_file

pytestmark = pytest.mark.integration
SHAPES = {f"model.layers.{n}.mlp.up_proj.weight": (2 * 1024, 1024) for n in range(6)}
VERSION = "step-1"
IMAGE_BYTES = 512 * 2**20
"""XFS has no smaller ones than 300 MiB. The image is sparse."""
_FIEMAP = 0xC020660B
_HEAD, _EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
_SYNC, _SHARED = 0x1, 0x2000
_MOST = 256


def shared_bytes(path: Path) -> int:
    """Return how many bytes of a file lie in blocks that another file has too."""
    found = bytearray(_HEAD.size + _MOST * _EXTENT.size)
    _HEAD.pack_into(found, 0, 0, 2**64 - 1, _SYNC, 0, _MOST, 0)
    with path.open("rb") as file:
        fcntl.ioctl(file, _FIEMAP, found)
    count = _HEAD.unpack_from(found)[3]
    extents = [_EXTENT.unpack_from(found, _HEAD.size + n * _EXTENT.size) for n in range(count)]
    return sum(extent[2] for extent in extents if extent[5] & _SHARED)


@pytest.fixture(params=["xfs", "btrfs"])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system with reflinks."""
    kind: str = request.param
    make = shutil.which(f"mkfs.{kind}", path="/usr/sbin:/sbin:/usr/bin:/bin")
    assert make is not None, f"no mkfs.{kind}; python -m dev.suite integration installs it"
    if os.geteuid() != 0:
        pytest.skip("needs root")
    image, root = tmp_path / "image", tmp_path / "disk"
    root.mkdir()
    image.touch()
    os.truncate(image, IMAGE_BYTES)
    subprocess.run([make, "-q", str(image)], check=True, capture_output=True)
    mount = ["mount", "-t", kind, "-o", "loop", str(image), str(root)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no {kind} can be mounted here: {mounted.stderr.strip()}")
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)


def written(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_file(folder / "model.safetensors", SHAPES, seed)
    (folder / "STABLE").touch()
    return folder / "model.safetensors"


def test_a_copy_shares_its_blocks_and_not_its_fate(disk: Path) -> None:
    written(disk / "model", 0)
    source = written(disk / "weights" / VERSION, 1)
    settings = SidecarSettings(
        model_name="fake",
        model_path=disk / "model",
        weights_path=f"{disk}/weights/{{version}}",
        cache_dir=disk / "cache",
        cache_spare=0,
    )
    request = PrepareRequest(operation="o", version=VERSION, wait_s=0)

    store = VersionStore(settings, Checkpoints(settings))
    assert store.prepare(PrepareJob(VERSION, 60), request, frozenset)

    copy = disk / "cache" / "versions" / VERSION / "model.safetensors"
    before, size = source.read_bytes(), source.stat().st_size
    assert size > len(SHAPES) * BF16_BYTES * 2**20
    assert shared_bytes(copy) >= size - size % 2**20
    with source.open("r+b") as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
    assert copy.read_bytes() == before
    assert shared_bytes(copy) < size // 2, "the trainer's write has taken blocks of its own"
