"""A prepare beside a plain copy of the same files: on a free machine, and beside busy work.

No cluster: the real store of a sidecar prepares, in a process of its own.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from bench.cgroups import groups
from bench.findings import Part, paragraphs, rounded
from bench.one_pass import COPY, PREPARE
from dev import cache
from dev.steps import say

_SHARES = {"sidecar": 51, "engine": 204}
"""Of 50m and 200m CPU: less than a sidecar requests by default."""
_LAYERS = 36
_TOP = {"model.embed_tokens.weight": (32_000, 1024), "lm_head.weight": (32_000, 1024)}
_LAYER = {
    "self_attn.qkv": (3072, 1024),
    "self_attn.o_proj": (1024, 1024),
    "mlp.gate_up": (6144, 1024),
    "mlp.down_proj": (1024, 3072),
    "norm": (1024,),
}
VERSION = "v"
_BF16_BYTES = 2
_BUSY = "a, b = bytearray(64 << 20), bytearray(64 << 20)\nwhile True: b[:] = a"
FREE, BUSY = "free", "busy"
_NOTES = """
About 1 GiB in bfloat16, 182 tensors in one file, which is read right before each sample: the page
cache has it. By turns in one process, shutil.copyfile copies it, and the store of a real sidecar
prepares it: check of the headers, copy in the kernel, BLAKE3 of each tensor of the copy, a look at
each value, and the record. Each sample writes new files of the same file system.

prepare_over_copy: median, over the rounds, of the seconds of a prepare over those of the copy
right before it; a machine that others use changes its speed from round to round. The process is
in a cgroup that outweighs what else runs on the machine.

prepare_over_copy_busy: the same beside one process a core that copies memory without a pause, as
an engine that computes on the CPU, in cgroups with 51 and 204 shares (50m and 200m CPU).

prepare_cpu_over_copy: the same of CPU seconds, on a free machine.
"""


def measure(*, rounds: int) -> Part:
    """Measure both ways, on a free machine and on a busy one."""
    with tempfile.TemporaryDirectory(dir=cache.folder("bench")) as name, groups(_SHARES) as procs:
        folder = Path(name)
        _write(folder)
        found = {FREE: _samples(folder, rounds, procs["sidecar"])}
        with _busy(procs["engine"]):
            found[BUSY] = _samples(folder, rounds, procs["sidecar"])
    return _part(found)


def _samples(folder: Path, rounds: int, procs: Path) -> list[dict[str, Any]]:
    # The shell moves itself first, so that no thread is left behind.
    command = f'echo $$ > {procs} && exec "$0" -m bench.one_pass "$@"'
    words = (folder, folder / "base", folder / "weights", VERSION, rounds)
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
    )
    say(done.stdout)
    return samples_of(done.stdout)


def samples_of(said: str) -> list[dict[str, Any]]:
    """Return what bench.one_pass printed."""
    return [json.loads(line) for line in said.splitlines()]


@contextmanager
def _busy(procs: Path) -> Iterator[None]:
    running = []
    try:
        for _ in os.sched_getaffinity(0):
            one = subprocess.Popen([sys.executable, "-c", _BUSY])
            running.append(one)
            procs.write_text(str(one.pid))
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def _write(folder: Path) -> None:
    shapes = _TOP | {
        f"model.layers.{layer}.{name}.weight": shape
        for layer in range(_LAYERS)
        for name, shape in _LAYER.items()
    }
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + prod(shape) * _BF16_BYTES
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    (folder / "base").mkdir()
    (folder / "weights" / VERSION).mkdir(parents=True)
    file = folder / "base" / "model.safetensors"
    # The top bit of each exponent is clear: no NaN.
    block = bytes(byte & 0x3F for byte in os.urandom(1 << 20))
    with file.open("wb") as made:
        made.write(struct.pack("<Q", len(encoded)) + encoded)
        for begin in range(0, end, len(block)):
            made.write(block[: end - begin])
    os.link(file, folder / "weights" / VERSION / file.name)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 32_000}
    (folder / "base" / "config.json").write_text(json.dumps(config))


def _part(found: Mapping[str, list[dict[str, Any]]]) -> Part:
    return Part(
        figures={
            "prepare_over_copy": ratio(found[FREE], "wall_s"),
            "prepare_over_copy_busy": ratio(found[BUSY], "wall_s"),
            "prepare_cpu_over_copy": ratio(found[FREE], "cpu_s"),
        },
        detail={
            "tables": {
                f"Seconds on a {machine} machine": [
                    {"way": way} | {what: line(samples, way, what) for what in ("wall_s", "cpu_s")}
                    for way in (COPY, PREPARE)
                ]
                for machine, samples in found.items()
            },
            "seconds": {
                machine: {way: _median(samples, way, "wall_s") for way in (COPY, PREPARE)}
                for machine, samples in found.items()
            },
            "samples": found,
        },
        notes=paragraphs(_NOTES),
    )


def ratio(samples: list[dict[str, Any]], what: str) -> float:
    """Return the median ratio of a prepare and the copy right before it."""
    copies, prepares = ([one[what] for one in samples if one["way"] == w] for w in (COPY, PREPARE))
    # The first round touches memory that the machine has not given yet.
    pairs = [*zip(copies, prepares, strict=True)][1:]
    return rounded(median(prepare / copy for copy, prepare in pairs))


def _median(samples: list[dict[str, Any]], way: str, what: str) -> float:
    return rounded(median(one[what] for one in samples if one["way"] == way))


def line(samples: list[dict[str, Any]], way: str, what: str) -> str:
    return ", ".join(f"{one[what]:.2f}" for one in samples if one["way"] == way)
