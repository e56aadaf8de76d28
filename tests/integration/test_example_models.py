"""The fleets of examples/models, and the pods made of them, are what an API server accepts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.core.model.world import Fleet
from tests.integration.conftest import kubectl

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/fleet.yaml"))
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
DEFAULTS = pod_manifest.Defaults(worker_image="worker:1")


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
def test_the_api_server_accepts_the_objects_and_the_worker_pod(
    plane: apiserver.ControlPlane, namespace: str, name: str
) -> None:
    kubectl(plane, "label", "namespace", namespace, RESTRICTED)
    pod = pod_manifest.pod(fleet_of(name), 0, DEFAULTS)
    pod["metadata"]["namespace"] = namespace
    objects = [*built(name), pod]
    words = ("apply", f"--namespace={namespace}", "--dry-run=server", "--filename=-")

    done = kubectl(
        plane, *words, "--validate=strict", stdin=yaml.safe_dump_all(objects), check=False
    )

    assert done.returncode == 0, done.stderr
    assert "would violate" not in done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_has_a_gpu_for_each_rank_and_the_model_that_is_downloaded(name: str) -> None:
    fleet = fleet_of(name)
    engine = fleet.spec.engine
    (model,) = (one["data"]["MODEL"] for one in built(name) if one["kind"] == "ConfigMap")

    assert engine.resources.limits["nvidia.com/gpu"] == engine.tensor_parallel_size
    assert fleet.spec.model.name == model


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_lists_it(name: str) -> None:
    assert f"\n| {name} " in (EXAMPLES / "README.md").read_text()
