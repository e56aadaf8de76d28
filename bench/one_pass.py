"""Prepares a version and copies its files plainly, by turns; one line of JSON each.

python -m bench.one_pass FOLDER ROUNDS: FOLDER has base, weights/v and room for copies. Nothing
else of the sidecar runs, so that the bench can put this process into a cgroup of its own.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob

VERSION = "v"
PREPARE, COPY = "prepare", "plain copy"
_TIMEOUT_S = 600


def main() -> None:
    """Measure as many rounds as are asked for."""
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    source = folder / "weights" / VERSION
    for _ in range(rounds):
        for name, work in ((COPY, _copy), (PREPARE, _prepare)):
            _read(source)
            print(json.dumps({"way": name, **_measured(work, folder)}), flush=True)


def _measured(work: Callable[[Path], None], folder: Path) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(folder)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    shutil.rmtree(folder / "copy")
    return {"wall_s": wall, "cpu_s": cpu, "peak_mib": getrusage(RUSAGE_SELF).ru_maxrss / 1024}


def _copy(folder: Path) -> None:
    (folder / "copy").mkdir()
    for path in sorted((folder / "weights" / VERSION).iterdir()):
        shutil.copyfile(path, folder / "copy" / path.name)


def _prepare(folder: Path) -> None:
    settings = SidecarSettings(
        model_name="staged",
        model_path=folder / "base",
        weights_path=f"{folder}/weights/{{version}}",
        cache_dir=folder / "copy",
        cache_spare=0,
        markers=(),
    )
    store = VersionStore(settings, Checkpoints(settings))
    request = PrepareRequest(operation="bench", version=VERSION)
    if not store.prepare(PrepareJob(VERSION, _TIMEOUT_S), request, frozenset):
        raise RuntimeError("the version was there before")


def _read(source: Path) -> None:
    """Read every file, so that the page cache has it."""
    buffer = bytearray(8 << 20)
    for path in source.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        while os.readv(descriptor, [buffer]):
            pass
        os.close(descriptor)


if __name__ == "__main__":
    main()
