"""Deltas with an index, as slime, miles, Stitch and rlfleet.publish write them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fakes.deltas.shard import Shard
from tests.fakes.deltas.tensors import Tensors, checksum_of, fragment_of, packed, trained

INDEX = "model.safetensors.index.json"


def write_delta(
    root: Path,
    number: int,
    old: Mapping[str, bytes],
    new: Mapping[str, bytes],
    *,
    encoding: str = "xor",
    algorithm: str = "xxh3-128",
    shards: int = 1,
) -> Path:
    """Write what slime and miles publish, the index last."""
    directory = root / f"weight_v{number:06d}"
    directory.mkdir(parents=True, exist_ok=True)
    changed = [name for name in new if new[name] != old[name]]
    weight_map: dict[str, str] = {}
    for place in range(min(shards, len(changed))):
        file = f"model-{place:05d}-of-{min(shards, len(changed)):05d}.safetensors"
        held = changed[place::shards]
        Shard(
            {name: packed(fragment_of(old[name], new[name], encoding)) for name in held},
            {name: checksum_of(new[name], algorithm) for name in held},
        ).write(directory / file)
        weight_map |= dict.fromkeys(held, file)
    write_index(directory, number, weight_map, encoding, algorithm)
    return directory


def write_index(
    directory: Path,
    number: int,
    weight_map: Mapping[str, str],
    encoding: str = "xor",
    algorithm: str = "xxh3-128",
) -> None:
    metadata = {
        "version": f"{number:06d}",
        "base_version": f"{number - 1:06d}",
        "delta_encoding": encoding,
        "compression_format": "zstd",
        "checksum_format": algorithm,
    }
    (directory / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))


def write_chain(
    root: Path, old: Tensors, count: int, write: Callable[..., Path] = write_delta, **form: Any
) -> list[Tensors]:
    """Write versions 1 to ``count``; returns the tensors of each, the first ones before them."""
    states = [old]
    for number in range(1, count + 1):
        states.append(trained(states[-1], number))
        write(root, number, states[-2], states[-1], **form)
    return states
