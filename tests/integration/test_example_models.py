"""The fleets of examples/models fit together; test_examples.py has the API server's view."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.core.model.world import Fleet

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/fleet.yaml"))
DOWNLOADING = [
    *NAMES,
    "../areal",
    "../prime-rl",
    "../quick-start/gpu",
    "../skyrl",
    "../slime",
    "../trl",
]
"""Examples with the Job of storage/."""


def built(name: str) -> list[dict[str, Any]]:
    words = ["kubectl", "kustomize", str(EXAMPLES / name)]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(made))


def fleet_of(name: str) -> Fleet:
    (found,) = (one for one in built(name) if one["kind"] == "RLInferenceFleet")
    metadata = {"namespace": "default", "uid": "u", "generation": 1} | found["metadata"]
    return fleet_from({**found, "metadata": metadata})


def test_there_are_examples_small_and_large_dense_and_with_experts() -> None:
    assert NAMES == ["qwen2.5-72b-tp8", "qwen3-0.6b", "qwen3-30b-a3b", "qwen3-8b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_has_a_gpu_for_each_rank_and_the_model_that_is_downloaded(name: str) -> None:
    fleet = fleet_of(name)
    engine = fleet.spec.engine
    (model,) = (one["data"]["MODEL"] for one in built(name) if one["kind"] == "ConfigMap")

    assert engine.resources.limits["nvidia.com/gpu"] == engine.tensor_parallel_size
    assert fleet.spec.model.name == model


@pytest.mark.parametrize("name", DOWNLOADING)
def test_no_other_model_of_the_same_claim_is_served_under_its_name(name: str) -> None:
    model = fleet_of(name).spec.model
    maps = (one for one in built(name) if one["kind"] == "ConfigMap")
    (downloaded,) = (one["data"]["MODEL"] for one in maps if one["metadata"]["name"] == "model")

    assert (model.name, model.path) == (downloaded, f"/models/{downloaded}")


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_lists_it(name: str) -> None:
    assert f"\n| {name} " in (EXAMPLES / "README.md").read_text()
