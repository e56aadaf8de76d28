"""A worker's tokens per second while it prepares a version, compared with a plain copy.

Prepare reads, checks, digests and copies while the engine serves. A plain copy of the same bytes
shows which part of the cost is the machine's.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import cluster, copying, one_pass
from bench.findings import Part, paragraphs, rounded
from bench.fleet import Fleet
from bench.load import Load, Roll, pooled, row, under_load
from dev.shell import Shell
from dev.steps import say

_MODEL = replace(cluster.LARGE, name="staged", steps=3)
"""The cache keeps the current and the previous version, so only a third one is copied again."""
PREPARE, COPY = "prepare", "plain copy"
_NOTES = """
One worker, real vLLM on CPU, about 1 GiB of weights; six closed-loop clients, 24 tokens a
request, streamed. rollout.paused lets the version be prepared and nothing be changed. By turns
the version's files are copied plainly, by shutil.copyfile in the same container into the same
cache. Its files are read right before each of both, and what was written before is on the disk.

Engine, clients and copy share two cores: all ratios are those of a machine without a core to
spare.

prepare_throughput_ratio: tokens per second from the patch until the sidecar says that the
version is prepared, over those of the 16 s before; of all samples together, because tokens come
in bursts. The patch's way to the sidecar is in it. copy_throughput_ratio: the same while the
files are copied, several times in a row.

prepare_over_copy_engine: what part copying measures, beside that engine instead of other busy
work, in the sidecar's container: by turns in one process, each right after its files are read.
"""
_COPIES = 3
_ROOM = "/var/cache/rlfleet/bench"
_COPY = """
import pathlib, shutil, sys, time
source, target, copies = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
begun = time.time()
for _ in range(copies):
    target.mkdir()
    for file in sorted(source.iterdir()):
        shutil.copyfile(file, target / file.name)
    ended = time.time()
    shutil.rmtree(target)
print(begun, ended)
"""
_READ = """
import os, pathlib, sys
for file in pathlib.Path(sys.argv[1]).iterdir():
    with file.open("rb", buffering=0) as opened:
        while opened.read(1 << 20):
            pass
os.sync()
"""


def measure(*, repeats: int, as_it_is: bool) -> Part:
    """Measure prepares and copies by turns."""
    loads: dict[str, list[Load]] = {PREPARE: [], COPY: []}
    with cluster.ready(as_it_is=as_it_is) as shell:
        cluster.write_checkpoints(shell, _MODEL)
        fleet = Fleet(shell, _MODEL)
        fleet.resize(1)
        # The version that it booted with was staged when nothing else was.
        fleet.change()
        rolls = {PREPARE: fleet.prepare, COPY: lambda: _copy(shell)}
        for _ in range(repeats):
            for name, roll in rolls.items():
                version = fleet.next if name == PREPARE else _MODEL.versions[0]
                loads[name].append(_loaded(shell, version, roll))
                if name == PREPARE:
                    fleet.release()
            say(f"{ {name: round(found[-1].ratio, 2) for name, found in loads.items()} }")
        samples = _one_pass(shell, rounds=repeats + 1)
        fleet.delete()
    return _part(loads, samples)


def _loaded(shell: Shell, version: str, roll: Roll) -> Load:
    def read_first() -> tuple[float, float]:
        _in_sidecar(shell, _READ, _files(version))
        return roll()

    return under_load(shell, _MODEL.name, _MODEL.name, read_first)


def _copy(shell: Shell) -> tuple[float, float]:
    source, target = _files(_MODEL.versions[0]), "/var/cache/rlfleet/copy"
    begun, ended = map(float, _in_sidecar(shell, _COPY, source, target, str(_COPIES)).split())
    return begun, ended


def _one_pass(shell: Shell, rounds: int) -> list[dict[str, Any]]:
    """Prepare and copy by turns in the sidecar's container while clients keep the engine busy."""
    said: list[str] = []

    def by_turns() -> tuple[float, float]:
        begun, script = time.time(), Path(one_pass.__file__).read_text()
        _in_sidecar(shell, "import os, sys; os.mkdir(sys.argv[1])", _ROOM)
        paths = (_ROOM, f"/data/models/{_MODEL.name}", "/data/weights")
        said.append(_in_sidecar(shell, script, *paths, _MODEL.versions[0], str(rounds)))
        return begun, time.time()

    under_load(shell, _MODEL.name, _MODEL.name, by_turns)
    say(said[0])
    return copying.samples_of(said[0])


def _in_sidecar(shell: Shell, script: str, *words: str) -> str:
    into = ("exec", f"{_MODEL.name}-0", "-c", "sidecar", "--", "python3", "-c", script)
    return shell.kubectl(*into, *words)


def _files(version: str) -> str:
    return f"/data/weights/{version}"


def _part(loads: dict[str, list[Load]], samples: list[dict[str, Any]]) -> Part:
    return Part(
        figures={
            "prepare_throughput_ratio": rounded(pooled(loads[PREPARE])),
            "copy_throughput_ratio": rounded(pooled(loads[COPY])),
            "prepare_over_copy_engine": copying.ratio(samples, "wall_s"),
        },
        detail={
            "tables": {
                "Tokens during it": [row("during", n, found) for n, found in loads.items()],
                "Seconds beside the engine": [
                    {"way": way, "wall_s": copying.line(samples, way, "wall_s")}
                    for way in (one_pass.COPY, one_pass.PREPARE)
                ],
            },
            "tokens_per_s": {name: found[0].line() for name, found in loads.items()},
            "samples": samples,
        },
        notes=paragraphs(_NOTES),
    )
