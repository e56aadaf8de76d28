"""The manifests of examples/minimal-trainer as its README has them applied, and what they do."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.demo import stage
from dev.images import names
from dev.shell import Shell
from tests.e2e.scenario import POD_S, Fleet, Trainer, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

EXAMPLE = stage.ROOT / "examples" / "minimal-trainer"
FLEET = "pupil"
JOB = "job/minimal-trainer"
DIRECTORY = "/data/pupil"
PUBLISHED = [f"weight_v{number:06}" for number in (1, 2, 3)]
LINE = re.compile(r"(\w+) reward (0\.\d\d), 1 of 1 workers proved \1")


def overlay(folder: Path) -> Path:
    """Return the example with the image that a user has to name, and few steps."""
    shutil.copytree(EXAMPLE, folder / "example")
    repository, _, tag = names.recorded()["worker"].rpartition(":")
    steps = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/args/-",
        "value": f"--steps={len(PUBLISHED)}",
    }
    made = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["example"],
        "images": [{"name": "REGISTRY/worker", "newName": repository, "newTag": tag}],
        "patches": [{"target": {"kind": "Job"}, "patch": yaml.safe_dump([steps])}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made))
    return folder


@pytest.fixture
def example(shell: Shell, trainer: Trainer, tmp_path: Path) -> Iterator[Fleet]:
    """The example's objects; numbers of versions begin at 1 where none was published."""
    shell.kubectl("exec", "trainer", "--", "rm", "-rf", DIRECTORY)
    shell.kubectl("apply", "-k", str(overlay(tmp_path)))
    yield Fleet(shell, FLEET)
    shell.kubectl("delete", "-k", str(tmp_path), "--ignore-not-found")


def ended(shell: Shell) -> dict[str, Any]:
    """Wait until the Job has ended, either way; return its status."""

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(shell.kubectl("get", JOB, "-o", "json"))["status"]
        return found

    def has_ended() -> bool:
        conditions = status().get("conditions", ())
        return any(
            c["type"] in {"Complete", "Failed"} and c["status"] == "True" for c in conditions
        )

    until(has_ended, POD_S, "the trainer has ended")
    return status()


def test_each_version_that_the_minimal_trainer_publishes_is_proved(
    example: Fleet, shell: Shell
) -> None:
    job = ended(shell)
    said = shell.kubectl("logs", JOB)

    # A second pod would hide that the first one failed.
    assert (job.get("succeeded"), job.get("failed", 0)) == (1, 0), said + example.describe()
    steps = [found for line in said.splitlines() if (found := LINE.fullmatch(line))]
    assert [step[1] for step in steps] == PUBLISHED, said
    listed = shell.kubectl("exec", "trainer", "--", "ls", DIRECTORY).split()
    assert [name for name in listed if name.startswith("weight_v")] == PUBLISHED
    status = example.wait_synced(60)
    rollouts = {past["to"]: past["result"] for past in status["history"] if past["to"]}
    rollouts[status["rollout"]["to"]] = status["rollout"]["phase"]
    assert rollouts == dict.fromkeys(PUBLISHED, "Completed")
    assert changes(shell) == PUBLISHED
    (worker,) = status["workers"]
    assert (worker["version"], worker["ready"]) == (PUBLISHED[-1], True)
    assert {"Installed", "Probe"} <= set(worker["verifiedBy"])


def changes(shell: Shell) -> list[str]:
    """Return the versions that the worker's own sidecar reports as proved, in their order."""
    lines = shell.kubectl("logs", f"{FLEET}-0", "-c", "sidecar").splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return [one["version"] for one in records if one["message"] == "Change succeeded"]
