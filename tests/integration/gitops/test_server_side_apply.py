"""A GitOps tool, a trainer and an autoscaler own fields of one fleet, by server-side apply."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver
from tests.integration.conftest import ROOT, kubectl

pytestmark = pytest.mark.integration
TOOL = ("--server-side", "--field-manager=argocd-controller")
FLEET: dict[str, Any] = {
    "apiVersion": "rlfleet.dev/v1alpha1",
    "kind": "RLInferenceFleet",
    "metadata": {"name": "qwen"},
    "spec": {
        "model": {"name": "qwen", "path": "/models/qwen"},
        "weights": {"path": "/weights/{version}"},
        "engine": {"extraEnv": [{"name": "A", "value": "1"}, {"name": "EMPTY"}]},
        "rollout": {"maxUnavailable": 1},
        "template": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
    },
}
FLEETS = sorted(
    [
        *ROOT.glob("examples/**/*.yaml"),
        ROOT / "dev/demo/fleet.yaml",
    ]
)


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, plane: apiserver.ControlPlane, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace

    def run(
        self, *words: str, stdin: Any = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        text = None if stdin is None else json.dumps(stdin)
        space = f"--namespace={self._namespace}"
        done = kubectl(self._plane, *words, space, stdin=text, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done

    def fleet(self, name: str = "qwen") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("get", "rlf", name, "-o", "json").stdout)
        return found


@pytest.fixture
def user(plane: apiserver.ControlPlane, namespace: str) -> Kubectl:
    return Kubectl(plane, namespace)


def test_three_managers_meet_no_conflict_and_leave_no_diff(user: Kubectl) -> None:
    user.run("apply", *TOOL, "-f", "-", stdin=FLEET)
    patch = json.dumps({"spec": {"weightVersion": "step-7", "weights": {"step": 7}}})
    user.run("patch", "rlf", "qwen", "--type=merge", "--field-manager=trainer", "-p", patch)
    user.run("scale", "rlf", "qwen", "--replicas=5")

    assert user.run("diff", *TOOL, "-f", "-", stdin=FLEET).stdout == ""
    user.run("apply", *TOOL, "-f", "-", stdin=FLEET)
    spec = user.fleet()["spec"]
    assert (spec["weightVersion"], spec["weights"]["step"], spec["replicas"]) == ("step-7", 7, 5)


def test_a_version_in_git_that_a_trainer_changed_is_a_conflict_by_name(user: Kubectl) -> None:
    pinned = {**FLEET, "spec": {**FLEET["spec"], "weightVersion": "step-1"}}
    user.run("apply", *TOOL, "-f", "-", stdin=pinned)
    patch = '{"spec":{"weightVersion":"step-7"}}'
    user.run("patch", "rlf", "qwen", "--type=merge", "--field-manager=trainer", "-p", patch)

    done = user.run("apply", *TOOL, "-f", "-", stdin=pinned, check=False)
    assert done.returncode == 1
    assert 'conflict with "trainer"' in done.stderr
    assert ".spec.weightVersion" in done.stderr


def test_each_manager_owns_its_own_variables_and_adapters(user: Kubectl) -> None:
    user.run("apply", *TOOL, "-f", "-", stdin=FLEET)
    spec = {"engine": {"extraEnv": [{"name": "NCCL_DEBUG", "value": "INFO"}]}}
    other = {**FLEET, "spec": spec}
    user.run("apply", "--server-side", "--field-manager=platform", "-f", "-", stdin=other)

    assert [one["name"] for one in user.fleet()["spec"]["engine"]["extraEnv"]] == [
        "A",
        "EMPTY",
        "NCCL_DEBUG",
    ]
    assert user.run("diff", *TOOL, "-f", "-", stdin=FLEET).stdout == ""


def test_what_the_api_server_defaults_is_no_diff_within_a_list(user: Kubectl) -> None:
    user.run("apply", *TOOL, "-f", "-", stdin=FLEET)

    assert user.fleet()["spec"]["engine"]["extraEnv"] == FLEET["spec"]["engine"]["extraEnv"]


def documents(path: Path) -> list[dict[str, Any]]:
    found = [one for one in yaml.safe_load_all(path.read_text()) if one]
    return [one for one in found if one.get("kind") == "RLInferenceFleet"]


@pytest.mark.parametrize(
    "path", [one for one in FLEETS if documents(one)], ids=lambda path: str(path.relative_to(ROOT))
)
@pytest.mark.parametrize("how", [("--server-side",), ()], ids=["server-side", "client-side"])
def test_an_applied_example_has_no_diff(user: Kubectl, path: Path, how: tuple[str, ...]) -> None:
    fleets = documents(path)
    for one in fleets:
        one["metadata"].pop("namespace", None)
    made = {"apiVersion": "v1", "kind": "List", "items": fleets}
    user.run("apply", *how, "-f", "-", stdin=made)

    done = user.run("diff", *how, "-f", "-", stdin=made)
    assert (done.returncode, done.stdout) == (0, "")
