"""The command ``plan``, as a person types it."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dev import environment
from rlfleet_operator import __main__ as command
from rlfleet_operator.cli_plan import live_of
from rlfleet_operator.kube.client import KubeClient, fleet_path
from tests.fakes.kube import FakeApi, serving

ROOT = Path(__file__).resolve().parents[3]
FLEET = """\
apiVersion: rlfleet.dev/v1alpha1
kind: RLInferenceFleet
metadata: {name: qwen, namespace: rl}
spec:
  replicas: 2
  weightVersion: step-2
  model: {name: qwen, path: /models/qwen}
  weights: {path: "/weights/{version}"}
"""
STATUS = """\
status:
  serving: step-1
  workers:
  - {name: qwen-0, phase: Serving, version: step-1, ready: true}
  - {name: qwen-1, phase: Serving, version: step-1, ready: true}
  history:
  - id: 1
    to: step-1
    result: Completed
    startedAt: "2026-01-01T00:00:00Z"
    seconds: 2
    windowMs: 240
    preparedBytes: 1500000
"""


def plan(text: str, *words: str, kubeconfig: str = "/nowhere") -> subprocess.CompletedProcess[str]:
    variables = environment.everything() | {
        "KUBECONFIG": kubeconfig,
        "PYTHONPATH": ":".join(str(ROOT / part) for part in ("operator", "sidecar", "plugin")),
    }
    return subprocess.run(
        [sys.executable, "-m", "rlfleet_operator", "plan", "-f", "-", *words],
        input=text,
        text=True,
        capture_output=True,
        env=variables,
        timeout=60,
        check=False,
    )


@pytest.fixture
def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The same without a process of its own: status, what was printed, what was complained of."""

    def typed(text: str, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rlfleet_operator", "plan", "-f", "-", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        status = command.main()
        return status, *capsys.readouterr()

    return typed


def test_it_plans_from_the_status_that_the_file_holds() -> None:
    done = plan(FLEET + STATUS, "--offline")

    assert done.stdout.splitlines() == [
        "qwen in rl",
        "  step-1 to step-2 by Rolling: 2 of 2 workers, at most 1 at once",
        "  prepare while serving: about 1,500,000 bytes per worker (size of the last version)",
        "  prepare: qwen-0, qwen-1",
        "  batch 1: qwen-0",
        "  batch 2: qwen-1",
        "  expected pause per worker: 240 ms (median of the last 1 rollouts)",
    ]
    assert done.returncode == 0


@pytest.mark.parametrize("phase", ["Preparing", "Pausing", "Paused", "Resuming"])
def test_a_serving_worker_is_planned_in_its_turn_in_every_phase(
    typed: Callable[..., tuple[int, str, str]], phase: str
) -> None:
    _, told, _ = typed(FLEET + STATUS.replace("phase: Serving", f"phase: {phase}"), "--offline")

    assert "  batch 1: qwen-0\n  batch 2: qwen-1\n" in told


def test_an_unreachable_cluster_is_reported_in_one_sentence() -> None:
    done = plan(FLEET)

    assert "add --offline" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: Pod", "failed to plan -: contains no RLInferenceFleet"),
        (FLEET.replace("replicas: 2", "replicas: two"), "spec.replicas: "),
        ("a: [", "failed to plan -: while parsing"),
    ],
    ids=["no fleet", "a wrong field", "no YAML"],
)
def test_a_file_that_cannot_be_planned_is_reported_in_one_sentence(
    typed: Callable[..., tuple[int, str, str]], text: str, told: str
) -> None:
    status, _, complaint = typed(text, "--offline")

    assert told in complaint
    assert "Traceback" not in complaint
    assert status == 1


@pytest.mark.parametrize(
    ("named", "own", "looked"),
    [
        ("rl", None, "rl"),
        ("rl", "rlfleet-system\n", "rl"),
        (None, "rlfleet-system\n", "rlfleet-system"),
    ],
    ids=["the manifest names one", "it does in a pod too", "a pod's own"],
)
async def test_a_pod_needs_no_kubeconfig_to_find_the_fleet(
    tmp_path: Path, named: str | None, own: str | None, looked: str
) -> None:
    wanted = yaml.safe_load(FLEET)
    wanted["metadata"]["namespace"] = named
    if own:
        (tmp_path / "namespace").write_text(own)
    api = FakeApi()
    api.objects[fleet_path(looked, "qwen")] = {"spec": {}}

    async with serving(api) as kube:

        async def connect() -> KubeClient:
            return kube

        assert await live_of(wanted, connect, tmp_path / "namespace") == {"spec": {}}
    assert wanted["metadata"]["namespace"] == looked
