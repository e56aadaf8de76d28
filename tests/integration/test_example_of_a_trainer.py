"""The manifests of examples/trainer fit together, and `make follow-demo` makes good ones."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver
from rlfleet_operator.crd.fleet_spec import FleetSpec
from tests.e2e.following import arrange
from tests.integration.conftest import kubectl

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "trainer"
LINES = 60
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def built() -> list[dict[str, Any]]:
    words = ["kubectl", "kustomize", str(EXAMPLE)]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(made))


def demo() -> list[dict[str, Any]]:
    """What `make follow-demo` makes of it."""
    plan = arrange.Plan(steps=15, every_s=8, keep=5, worker_image="worker:1")
    pod = (Path(arrange.__file__).parent / "pod.yaml").read_text()
    return [*arrange.arranged(built(), plan), yaml.safe_load(pod)]


def test_the_api_server_accepts_what_the_demo_makes_of_it(
    plane: apiserver.ControlPlane, namespace: str
) -> None:
    kubectl(plane, "label", "namespace", namespace, RESTRICTED)
    text = yaml.safe_dump_all(demo())
    words = ("apply", f"--namespace={namespace}", "--dry-run=server", "--filename=-")

    done = kubectl(plane, *words, stdin=text, check=False)

    assert done.returncode == 0, done.stderr
    # Pod Security warns of what it would reject in the pods of Deployments and Jobs.
    assert "would violate" not in done.stderr
    assert len(done.stdout.splitlines()) == len(demo())


def test_trainer_and_fleet_mean_the_same_store() -> None:
    found = {one["kind"]: one for one in built()}
    spec = FleetSpec.model_validate(found["RLInferenceFleet"]["spec"])
    job = found["Job"]["spec"]["template"]["spec"]["containers"][0]
    source = spec.weights.source if spec.weights is not None else None
    assert source is not None

    assert spec.weights is not None
    assert spec.weights.follow == "Latest"
    assert source.url == f"{job['args'][0]}/{{version}}"
    assert {"name": "AWS_ENDPOINT_URL", "value": source.endpoint} in job["env"]
    assert job["envFrom"][0]["secretRef"]["name"] == source.credentials_secret
    assert job["args"][1] == spec.model.path


@pytest.mark.parametrize("folder", ["trainer", "minimal-trainer"])
def test_a_trainer_has_few_lines(folder: str) -> None:
    assert len((EXAMPLE.parent / folder / "trainer.py").read_text().splitlines()) <= LINES


def test_the_minimal_trainer_and_its_fleet_mean_the_same_directories() -> None:
    folder = EXAMPLE.parent / "minimal-trainer"
    spec = yaml.safe_load((folder / "fleet.yaml").read_text())["spec"]
    job = yaml.safe_load((folder / "trainer.yaml").read_text())
    (trainer,) = job["spec"]["template"]["spec"]["containers"]
    fleet, engines, model, versions = trainer["args"]

    assert fleet == yaml.safe_load((folder / "fleet.yaml").read_text())["metadata"]["name"]
    assert engines == "http://pupil:8000"
    assert model == spec["model"]["path"]
    assert spec["weights"]["path"] == f"{versions}/{{version}}"


def test_the_minimal_trainer_alone_has_the_token_of_its_account() -> None:
    folder = EXAMPLE.parent / "minimal-trainer"
    account, binding = yaml.safe_load_all((folder / "access.yaml").read_text())
    pod = yaml.safe_load((folder / "trainer.yaml").read_text())["spec"]["template"]["spec"]

    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is True
    assert account["automountServiceAccountToken"] is False
    (subject,) = binding["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", pod["serviceAccountName"])
