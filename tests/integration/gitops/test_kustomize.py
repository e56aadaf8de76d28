"""deploy/kustomize, as a user applies it without Helm."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

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


def built(overlay: Path) -> list[dict[str, Any]]:
    """Return the objects that Kustomize makes, but the definition of a fleet."""
    argv = ["kubectl", "kustomize", str(overlay)]
    made = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    found = yaml.safe_load_all(made)
    return [one for one in found if one["kind"] != "CustomResourceDefinition"]


def test_an_overlay_moves_everything_into_another_namespace(tmp_path: Path) -> None:
    """A variable that named the Lease's namespace would stay, where the operator has no Role."""
    base = os.path.relpath(OVERLAY, tmp_path)
    own = {"namespace": "ml", "namePrefix": "team-", "resources": [base]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))

    found = built(tmp_path)

    assert "rlfleet-system" not in json.dumps(found)
    assert {one["metadata"].get("namespace", "ml") for one in found} == {"ml"}


def test_the_overlay_names_both_images() -> None:
    (found,) = (one for one in built(OVERLAY) if one["kind"] == "Deployment")
    (container,) = found["spec"]["template"]["spec"]["containers"]

    assert container["image"] == "registry.example.com/rlfleet/operator:0.2.0"
    worker = {"name": "RLFLEET_WORKER_IMAGE", "value": "registry.example.com/rlfleet/worker:0.2.0"}
    assert worker in container["env"]
    assert "rlfleet/worker:" not in json.dumps(container).replace("example.com/rlfleet", "")
