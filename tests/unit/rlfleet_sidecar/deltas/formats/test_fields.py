"""Reading the JSON files of deltas, as large as they may be."""

import json
import time

import pytest

from rlfleet_sidecar.deltas.formats import fields, manifest
from rlfleet_sidecar.deltas.formats.delta import BadDeltaError

NAMES = [f"model.layers.{number}.weight" for number in range(50_000)]
LONG_S = 20.0
"""A comparison of each name with all others would take over a minute."""


def test_a_name_that_is_twice_among_many_is_found_soon() -> None:
    pairs = ",".join(f"{json.dumps(name)}: 1" for name in [*NAMES, NAMES[-1]])
    begun = time.monotonic()

    with pytest.raises(BadDeltaError, match=f"has '{NAMES[-1]}' twice"):
        fields.object_of(f"{{{pairs}}}".encode())

    assert time.monotonic() - begun < LONG_S


def test_a_tensor_that_is_twice_among_many_is_found_soon() -> None:
    record = {
        "dtype": "uint8",
        "shape": [1],
        "payload_file": "a.safetensors",
        "payload_key": "a",
        "compressed_num_bytes": 1,
        "checksum": "0" * 32,
    }
    tensors = [record | {"name": name} for name in [*NAMES, NAMES[-1]]]
    begun = time.monotonic()

    with pytest.raises(BadDeltaError, match=f"lists tensor {NAMES[-1]} twice"):
        manifest.manifest_of({"version": 1, "base_version": 0, "tensors": tensors}, 1)

    assert time.monotonic() - begun < LONG_S


@pytest.mark.parametrize("name", ["\ud800.safetensors", "a\0.safetensors", "../a.safetensors"])
def test_a_name_that_no_file_of_the_directory_can_have_is_rejected(name: str) -> None:
    with pytest.raises(BadDeltaError, match="expected the name of a"):
        fields.file_name(name, "index", "payload_file")
