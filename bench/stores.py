"""A prepare from a real S3 server over a plain download of the same objects by the same library.

Both write the same files on the same disk, each in a process of its own, by turns. The server
runs on the same machine and takes CPU from both.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.findings import Part, paragraphs, rounded, summary
from dev import environment, steps
from dev.s3 import server
from dev.steps import say
from tests.fakes.checkpoints import BF16_BYTES, SHAPES, write_file

PREPARE, PLAIN = "prepare", "plain download"
_BUCKET, _SHARDS, _ROWS = "weights", 4, 2048
_MIB = 1 << 20
_NOTES = """
A real S3 server (versitygw) on the same machine serves a version in four objects; the processes
have equal CPU, of which the server takes its share.

prepare_over_plain_download: seconds of a prepare, with listing, checks, download, digest and look
at the values, over those of obstore's parallel download of the same objects to the same disk:
ranges of 32 MiB, 8 at once, no digest; medians, by turns.

store_prepare_peak_mib: the largest resident memory of the preparing process, Python included.
"""


def measure(*, nbytes: int, repeats: int) -> Part:
    """Measure prepares and plain downloads by turns."""
    steps.run(server.build_steps())
    found: dict[str, list[dict[str, float]]] = {PREPARE: [], PLAIN: []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with server.running(folder / "data") as s3:
            about = {
                "endpoint": s3.url,
                "access_key": s3.access_key,
                "secret_key": s3.secret_key,
                "model": str(_written(folder / "model", nbytes, seed=0)),
                "version": str(_written(folder / "source" / "step-1", nbytes, seed=1)),
                "bucket": _BUCKET,
            }
            s3.bucket(_BUCKET)
            _sample("upload", about, folder)
            for _ in range(repeats):
                for way, samples in found.items():
                    samples.append(_sample(way, about, folder))
                    say(f"{way}: {samples[-1]}")
    return _part(found, nbytes)


def _written(directory: Path, nbytes: int, seed: int) -> Path:
    """Write a checkpoint of about this size."""
    directory.mkdir(parents=True)
    names = [f"{name}.{part}" for part in range(8) for name in SHAPES]
    columns = nbytes // (len(names) * _ROWS * BF16_BYTES)
    weight_map: dict[str, str] = {}
    for shard in range(_SHARDS):
        file = f"model-{shard + 1:05d}-of-{_SHARDS:05d}.safetensors"
        held = names[shard::_SHARDS]
        write_file(directory / file, dict.fromkeys(held, (_ROWS, columns)), seed)
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "STABLE").touch()
    return directory


def _sample(way: str, about: Mapping[str, str], folder: Path) -> dict[str, float]:
    """Do it in a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as target:
        words = [sys.executable, "-m", "bench.store_reader", way, target, json.dumps(about)]
        env = environment.everything()
        done = subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _part(found: Mapping[str, list[dict[str, float]]], nbytes: int) -> Part:
    took = {way: [one["seconds"] for one in samples] for way, samples in found.items()}
    peak = max(one["peak_mib"] for one in found[PREPARE])
    detail: dict[str, Any] = {
        "mib": rounded(nbytes / _MIB),
        "seconds": {way: summary(values) for way, values in took.items()},
        "peak_mib": {way: max(one["peak_mib"] for one in found[way]) for way in found},
    }
    return Part(
        figures={
            "prepare_over_plain_download": rounded(median(took[PREPARE]) / median(took[PLAIN])),
            "store_prepare_peak_mib": rounded(peak),
        },
        detail=detail,
        notes=paragraphs(_NOTES),
    )
