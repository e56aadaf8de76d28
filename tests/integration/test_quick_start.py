"""The quick start's objects, and the pods made of them, are what an API server accepts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.demo import stage
from dev.kubernetes import apiserver
from rlfleet_operator.core.manifests import pod_manifest
from rlfleet_operator.core.model.fleet import fleet_from
from tests.integration.conftest import ROOT, kubectl

pytestmark = pytest.mark.integration

FOLDER = ROOT / "examples" / "quick-start"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def built(folder: Path) -> list[dict[str, Any]]:
    words = ["kubectl", "kustomize", str(folder)]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(made))


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "gpu"], ids=["cpu", "gpu"])
def test_the_api_server_accepts_it_and_its_worker_in_a_restricted_namespace(
    plane: apiserver.ControlPlane, namespace: str, folder: Path
) -> None:
    kubectl(plane, "label", "namespace", namespace, RESTRICTED)
    objects = built(folder)
    (found,) = (one for one in objects if one["kind"] == "RLInferenceFleet")
    metadata = {"namespace": namespace, "uid": "u", "generation": 1} | found["metadata"]
    fleet = fleet_from({**found, "metadata": metadata})
    pod = pod_manifest.pod(fleet, 0, pod_manifest.Defaults(worker_image="worker:1"))
    words = ("apply", f"--namespace={namespace}", "--dry-run=server", "--filename=-")

    done = kubectl(
        plane,
        *words,
        "--validate=strict",
        stdin=yaml.safe_dump_all([*objects, pod]),
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "would violate" not in done.stderr


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "gpu"], ids=["cpu", "gpu"])
def test_one_node_is_enough(folder: Path) -> None:
    claims = [one for one in built(folder) if one["kind"] == "PersistentVolumeClaim"]

    assert claims
    assert {mode for one in claims for mode in one["spec"]["accessModes"]} == {"ReadWriteOnce"}


def test_on_a_gpu_the_fleet_does_not_take_the_image_for_cpu_of_the_operator() -> None:
    objects = built(FOLDER / "gpu")
    (fleet,) = (one for one in objects if one["kind"] == "RLInferenceFleet")
    jobs = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Job"]

    assert {one["containers"][0]["image"] for one in jobs} == {fleet["spec"]["engine"]["image"]}


def test_the_demo_s_fleet_is_the_quick_start_s() -> None:
    assert (FOLDER / "fleet.yaml").read_text() == (stage.DEMO / "fleet.yaml").read_text()
