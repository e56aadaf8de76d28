"""A delta made into whole files, beside a copy of the same files and of the same memory.

No cluster and no engine: the sidecar's own code on this machine's disk, bound to one core.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.findings import Part, paragraphs, rounded, summary
from dev.steps import say
from rlfleet_sidecar.checkpoints.check import Checkpoints
from rlfleet_sidecar.deltas.publications import Publications
from rlfleet_sidecar.settings import SidecarSettings
from rlfleet_sidecar.staging.range_copy import STEP
from tests.fakes.deltas.indexed import write_delta
from tests.fakes.deltas.shard import Shard
from tests.fakes.deltas.tensors import Tensors

GIB = 1024**3
DENSITY = 0.02
_TENSORS = 8
_STEPS = (-2, -1, 1, 2)
"""An optimizer's step moves a weight by one or two of bfloat16's smallest distances."""
_FORMS = (
    ("xor", "xxh3-128"),
    ("xor", "blake3"),
    ("xor", "adler32"),
    ("overwrite", "xxh3-128"),
)
_NOTES = """
No cluster. bfloat16 weights of a normal distribution, of which 2 % moved by one or two of
the smallest distances; written as slime and miles do (one zstd frame a tensor, level 1). The
process is bound to one core, and all files are in the page cache. GiB/s are those of the
whole version's bytes over the process's CPU time, so that what else the machine does
counts little.

delta_apply_gib_s: chain, headers and frames checked, fragments decoded and applied, the new
tensors' checksums computed and compared, all files written. Digest and scan come after it, as
for any version. delta_apply_over_copy: that CPU time over the one of a copy by read and write.

delta_read_ratio: what the process read (/proc/self/io) less the start's own bytes, which lie
in the worker's cache, over the bytes of a full version.
"""


class Cost(NamedTuple):
    """What one piece of work took."""

    cpu_s: float
    wall_s: float
    read: int


def measure(*, nbytes: int, repeats: int, chain: int) -> Part:
    """Measure each form by turns, with both copies."""
    costs: dict[str, list[Cost]] = {}
    sizes: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder, _one_core():
        room = Path(folder)
        states = _states(nbytes, chain)
        model = _model(room / "model", states[0])
        works: dict[str, Callable[[], object]] = {
            "memory copy": lambda: _copy_memory(states[0]),
            "plain copy": lambda: _copy(model, room / "copy"),
        }
        for encoding, algorithm in _FORMS:
            name, root = f"{encoding} {algorithm}", room / f"{encoding}-{algorithm}"
            path = write_delta(root, 1, *states[:2], encoding=encoding, algorithm=algorithm)
            sizes[name] = rounded(sum(one.stat().st_size for one in path.iterdir()) / nbytes)
            works[name] = _applying(model, root, 1, room / "draft")
        for number in range(1, chain + 1):
            write_delta(room / "chain", number, *states[number - 1 : number + 1])
        works[f"chain of {chain}"] = _applying(model, room / "chain", chain, room / "draft")
        for _ in range(repeats):
            for name, work in works.items():
                costs.setdefault(name, []).append(_timed(work))
                shutil.rmtree(room / "draft", ignore_errors=True)
                shutil.rmtree(room / "copy", ignore_errors=True)
            say(f"{ {name: round(_speed(found, nbytes), 2) for name, found in costs.items()} }")
    return _part(costs, sizes, nbytes)


def _states(nbytes: int, steps: int) -> list[Tensors]:
    """Return the weights of a model, and of so many steps after it."""
    random = np.random.default_rng(1)
    each = nbytes // _TENSORS // 2
    weights = [
        (random.standard_normal(each, np.float32) * 0.02).view(np.uint32) >> 16
        for _ in range(_TENSORS)
    ]
    now = [one.astype(np.uint16) for one in weights]
    states = [_tensors(now)]
    for _ in range(steps):
        for one in now:
            moved = np.flatnonzero(random.random(each, np.float32) < DENSITY)
            one[moved] += random.choice(np.array(_STEPS, np.int16), len(moved)).view(np.uint16)
        states.append(_tensors(now))
    return states


def _tensors(arrays: Sequence[npt.NDArray[np.uint16]]) -> Tensors:
    return {f"layers.{place}.weight": one.tobytes() for place, one in enumerate(arrays)}


def _model(folder: Path, tensors: Tensors) -> Path:
    folder.mkdir()
    shapes = {name: [len(data) // 2] for name, data in tensors.items()}
    Shard(tensors, dtype="BF16", shapes=shapes).write(folder / "model.safetensors")
    return folder


def _applying(model: Path, root: Path, number: int, draft: Path) -> Callable[[], None]:
    settings = SidecarSettings(
        model_name="bench", model_path=model, weights_path=f"{root}/{{version}}"
    )
    publications = Publications(settings, Checkpoints(settings))

    def apply() -> None:
        draft.mkdir()
        with publications.build(f"weight_v{number:06d}") as build:
            build.source.fill(draft, lambda *_: None)

    return apply


def _copy_memory(tensors: Tensors) -> None:
    for data in tensors.values():
        bytearray(data)


def _copy(model: Path, into: Path) -> None:
    """Copy by read and write: no file system may share blocks instead."""
    into.mkdir()
    buffer = memoryview(bytearray(STEP))
    for path in model.iterdir():
        with path.open("rb") as source, (into / path.name).open("xb", buffering=0) as target:
            while count := source.readinto(buffer):
                target.write(buffer[:count])


def _timed(work: Callable[[], object]) -> Cost:
    read, wall, cpu = _read(), time.monotonic(), time.process_time()
    work()
    return Cost(time.process_time() - cpu, time.monotonic() - wall, _read() - read)


def _read() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def _speed(costs: Sequence[Cost], nbytes: int) -> float:
    return nbytes / GIB / median(cost.cpu_s for cost in costs)


@contextmanager
def _one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _scratch() -> str | None:
    """Return a folder in memory, if there is one: no disk is measured."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a private folder in it


def _part(costs: dict[str, list[Cost]], sizes: dict[str, float], nbytes: int) -> Part:
    speeds = {name: _speed(found, nbytes) for name, found in costs.items()}
    first, copy = "xor xxh3-128", "plain copy"
    read = median(cost.read for cost in costs[first]) - nbytes
    return Part(
        figures={
            "delta_apply_gib_s": rounded(speeds[first]),
            "delta_apply_over_copy": rounded(speeds[copy] / speeds[first]),
            "delta_read_ratio": rounded(read / nbytes),
        },
        detail={
            "gib_per_cpu_s": {name: rounded(speed) for name, speed in speeds.items()},
            "wall_s": {name: summary(c.wall_s for c in found) for name, found in costs.items()},
            "published_over_full": sizes,
            "version_mib": nbytes >> 20,
        },
        notes=paragraphs(_NOTES),
    )
