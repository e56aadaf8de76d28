"""A worker's tokens per second while it prepares a version, compared with a plain copy.

Prepare reads, checks, digests and copies while the engine serves. A plain copy of the same bytes
shows which part of the cost is the machine's.
"""

from dataclasses import replace
from statistics import median

from bench import cluster
from bench.findings import Part, paragraphs, rounded
from bench.fleet import Fleet
from bench.load import Load, row, under_load
from dev.shell import Shell
from dev.steps import say

_MODEL = replace(cluster.LARGE, name="staged", steps=3)
"""The cache keeps the current and the previous version, so only a third one is copied again."""
PREPARE, COPY = "prepare", "plain copy"
_NOTES = """
One worker, real vLLM on CPU, about 1 GiB of weights; six closed-loop clients, 24 tokens a
request, streamed. rollout.paused lets the version be prepared and nothing be changed.

prepare_throughput_ratio: tokens per second from the patch until the sidecar says that the
version is prepared, over those of the 8 s before; median. The patch's way to the sidecar
is in it.

copy_throughput_ratio: the same while shutil.copyfile copies the version's files into the same
cache in the same container: what the disk and the copying itself cost. Engine, clients and
copy share two cores, so that both ratios are those of a machine without a core to spare.
"""
_COPY = """
import pathlib, shutil, sys, time
source, target = map(pathlib.Path, sys.argv[1:])
target.mkdir()
begun = time.time()
for file in sorted(source.iterdir()):
    shutil.copyfile(file, target / file.name)
print(begun, time.time())
shutil.rmtree(target)
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
        for _ in range(repeats):
            loads[PREPARE].append(under_load(shell, _MODEL.name, _MODEL.name, fleet.prepare))
            fleet.release()
            copied = under_load(shell, _MODEL.name, _MODEL.name, lambda: _copy(shell))
            loads[COPY].append(copied)
            say(f"{ {name: round(found[-1].ratio, 2) for name, found in loads.items()} }")
        fleet.delete()
    return _part(loads)


def _copy(shell: Shell) -> tuple[float, float]:
    into = ("exec", f"{_MODEL.name}-0", "-c", "sidecar", "--", "python3", "-c", _COPY)
    paths = (f"/data/weights/{_MODEL.versions[0]}", "/var/cache/rlfleet/copy")
    begun, ended = map(float, shell.kubectl(*into, *paths).split())
    return begun, ended


def _part(loads: dict[str, list[Load]]) -> Part:
    return Part(
        figures={
            "prepare_throughput_ratio": rounded(median(one.ratio for one in loads[PREPARE])),
            "copy_throughput_ratio": rounded(median(one.ratio for one in loads[COPY])),
        },
        detail={
            "tables": {"Tokens during it": [row("during", n, found) for n, found in loads.items()]},
            "tokens_per_s": {name: found[0].line() for name, found in loads.items()},
        },
        notes=paragraphs(_NOTES),
    )
