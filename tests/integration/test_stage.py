"""What the demo does with an operator on a cluster of the user's, by a real helm."""

import fcntl
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dev.demo import stage
from dev.kubernetes import apiserver
from dev.shell import Shell
from dev.steps import StepFailed
from tests.integration.conftest import IMAGES, ROOT

pytestmark = pytest.mark.integration
WHERE = f"--namespace={stage.OPERATOR_NAMESPACE}"
TAG_OF_THE_USERS = "--set=image.tag=of-the-user"


@pytest.fixture
def shell(plane: apiserver.ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A shell of one test at a time: the operator's namespace is one of the whole cluster."""
    monkeypatch.setenv("CLUSTER", "existing")
    with (plane.logs / "stage.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = Shell(plane.kubeconfig, "rlfleet-demo", is_quiet=True)
        yield made
        made.run("helm", "uninstall", stage.RELEASE, WHERE, "--ignore-not-found")


def install(shell: Shell, *values: str) -> None:
    chart = str(ROOT / "charts" / "rlfleet")
    words = ("helm", "upgrade", "--install", stage.RELEASE, chart, WHERE, "--create-namespace")
    shell.run(*words, "--set=crds.enabled=false", *IMAGES, *values)


def releases(shell: Shell) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(shell.run("helm", "list", WHERE, "--output=json"))
    return found


@pytest.mark.parametrize(
    "was_the_demo_s", [False, True], ids=["from the start", "since an upgrade"]
)
def test_an_operator_of_the_users_is_neither_upgraded_nor_uninstalled(
    shell: Shell,
    was_the_demo_s: bool,  # noqa: FBT001 - pytest hands it over
) -> None:
    if was_the_demo_s:
        install(shell, stage.MARK)
    install(shell, TAG_OF_THE_USERS)
    before = releases(shell)

    stage.operator(shell)
    stage.remove_operator(shell)

    assert releases(shell) == before != []


def test_an_operator_that_the_demo_installed_is_uninstalled(shell: Shell) -> None:
    install(shell, stage.MARK)

    stage.remove_operator(shell)
    stage.remove_operator(shell)

    assert releases(shell) == []


PATCHED = {
    "engine": {"args": ["--enable-lora"]},
    "adapters": [{"name": "poet", "path": "/data/weights/poet", "version": "v1"}],
    "rollout": {"paused": True},
}


def test_a_fleet_that_was_patched_is_as_its_manifest_again(shell: Shell, namespace: str) -> None:
    own, manifest = Shell(shell.kubeconfig, namespace, is_quiet=True), stage.DEMO / "fleet.yaml"

    def spec() -> Any:
        return json.loads(own.kubectl("get", "rlf/qwen", "-o=json"))["spec"]

    stage.fleet(own, str(manifest))
    made = spec()
    own.kubectl("patch", "rlf/qwen", "--type=merge", f"--patch={json.dumps({'spec': PATCHED})}")
    with pytest.raises(StepFailed, match="adapters need --enable-lora"):
        own.kubectl("apply", "-f", str(manifest))

    stage.fleet(own, str(manifest))

    assert spec() == made
    # A user's next apply begins from here.
    assert "unchanged" in own.kubectl("apply", "-f", str(manifest))


def test_a_definition_of_the_users_is_left_as_it_is(shell: Shell) -> None:
    """The control plane's was applied by kubectl: helm would refuse to adopt it."""
    assert stage.definition_values(shell) == ["--set=crds.enabled=false"]


def test_a_definition_that_the_release_made_is_upgraded_with_it(shell: Shell) -> None:
    owner = {"namespace": stage.OPERATOR_NAMESPACE, "name": stage.RELEASE}
    notes = [f"meta.helm.sh/release-{part}={value}" for part, value in owner.items()]
    shell.kubectl("annotate", "crd", stage.DEFINITION, *notes)
    try:
        assert stage.definition_values(shell) == []
    finally:
        gone = [note.partition("=")[0] + "-" for note in notes]
        shell.kubectl("annotate", "crd", stage.DEFINITION, *gone)
