"""Prepares a version and copies its files plainly, by turns; one line of JSON each.

python -m bench.one_pass FOLDER MODEL WEIGHTS VERSION ROUNDS: FOLDER has room for copies. Nothing
else of the sidecar runs, so that the bench can put this process into a cgroup of its own. It is
also run by `python3 -c` in a sidecar's container: it imports nothing else of the bench.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlfleet_contract.worker.commands import PrepareRequest
from rlfleet_sidecar.cache.store import VersionStore
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.prepare_job import PrepareJob

PREPARE, COPY = "prepare", "plain copy"
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files are, and where copies of them may be made."""

    folder: Path
    model: Path
    weights: Path
    version: str

    @property
    def source(self) -> Path:
        """The version's directory."""
        return self.weights / self.version

    @property
    def target(self) -> Path:
        """What each way makes, and is removed after it."""
        return self.folder / "copy"


def main() -> None:
    """Measure as many rounds as are asked for."""
    folder, model, weights, version, rounds = sys.argv[1:]
    place = Place(Path(folder), Path(model), Path(weights), version)
    for _ in range(int(rounds)):
        for name, work in ((COPY, _copy), (PREPARE, _prepare)):
            _read(place.source)
            print(json.dumps({"way": name, **_measured(work, place)}), flush=True)


def peak_mib() -> float:
    """Return the largest resident memory that this process ever had, in MiB.

    ru_maxrss would begin at its parent's, because it outlives an exec.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def _measured(work: Callable[[Place], None], place: Place) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work(place)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    shutil.rmtree(place.target)
    return {"wall_s": wall, "cpu_s": cpu, "peak_mib": peak_mib()}


def _copy(place: Place) -> None:
    place.target.mkdir()
    for path in sorted(place.source.iterdir()):
        shutil.copyfile(path, place.target / path.name)


def _prepare(place: Place) -> None:
    settings = SidecarSettings(
        model_name="staged",
        model_path=place.model,
        weights_path=f"{place.weights}/{{version}}",
        cache_dir=place.target,
        cache_spare=0,
        markers=(),
    )
    store = VersionStore(settings, Checkpoints(settings))
    request = PrepareRequest(operation="bench", version=place.version)
    if not store.prepare(PrepareJob(place.version, _TIMEOUT_S), request, frozenset):
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
