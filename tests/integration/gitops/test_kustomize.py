"""deploy/kustomize, as a user applies it without Helm."""

import json
import subprocess

import pytest
import yaml

from dev.docs import kustomize
from dev.kubernetes import apiserver
from tests.integration.conftest import CONTROLLERS, ROOT, kubectl

pytestmark = pytest.mark.integration
FOLDER = ROOT / "deploy" / "kustomize"
OVERLAY = FOLDER / "overlays" / "example"


def test_the_base_is_the_chart_s() -> None:
    made = (FOLDER / "base" / "rlfleet.yaml").read_text()

    assert made == kustomize.base(), "run python -m dev.generated"


def test_the_api_server_takes_the_overlay_twice_with_no_diff() -> None:
    # On a server of its own: the overlay's ServiceAccount and roles are those of other tests.
    with apiserver.running(controllers=CONTROLLERS) as plane:
        kubectl(plane, "create", "namespace", "rlfleet-system")
        words = ("--server-side", "--force-conflicts", "-k", str(OVERLAY))
        applied = kubectl(plane, "apply", *words, "--validate=strict")
        diff = kubectl(plane, "diff", *words, check=False)

    assert "deployment.apps/rlfleet serverside-applied" in applied.stdout
    assert (diff.returncode, diff.stdout) == (0, "")


def test_the_overlay_names_both_images() -> None:
    argv = ["kubectl", "kustomize", str(OVERLAY)]
    made = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    (found,) = (one for one in yaml.safe_load_all(made) if one["kind"] == "Deployment")
    (container,) = found["spec"]["template"]["spec"]["containers"]

    assert container["image"] == "registry.example.com/rlfleet/operator:0.2.0"
    worker = {"name": "RLFLEET_WORKER_IMAGE", "value": "registry.example.com/rlfleet/worker:0.2.0"}
    assert worker in container["env"]
    assert "rlfleet/worker:" not in json.dumps(container).replace("example.com/rlfleet", "")
