"""The kubectl plugin's file against a kubelet, vLLM's metrics and the operator's pod."""

import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dev import plugin
from dev.demo import stage
from dev.kubernetes import binaries
from dev.shell import Shell
from rlfleet_kubectl.errors import Exit
from tests.e2e.scenario import FLEET, POD_S, Fleet

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def rlf(tmp_path_factory: pytest.TempPathFactory, shell: Shell) -> Run:
    """Run `kubectl rlf WORDS` in the fleet's namespace."""
    program = plugin.write(tmp_path_factory.mktemp("plugin") / plugin.NAME)
    folders = [str(program.parent), str(binaries.path("kubectl").parent), *os.get_exec_path()]
    env = {
        "HOME": str(program.parent),
        "PATH": os.pathsep.join(folders),
        "KUBECONFIG": str(shell.kubeconfig),
    }

    def run(*words: str, status: int = Exit.OK) -> str:
        argv = ["kubectl", "rlf", *words, f"--namespace={shell.namespace}"]
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run


def test_doctor_finds_no_error_in_a_fleet_that_serves(fleet: Fleet, rlf: Run) -> None:
    assert json.loads(rlf("doctor", fleet.name, "-o", "json"))["errors"] == 0


WORDS = "unrecognized arguments: --bogus=3"


@pytest.fixture
def wrong(shell: Shell) -> Iterator[Fleet]:
    """A fleet whose engine does not start."""
    text = (stage.DEMO / "fleet.yaml").read_text().replace("replicas: 2", "replicas: 1")
    text = text.replace(f"name: {FLEET}\nspec", "name: wrong\nspec").replace(
        "bfloat16]", "bfloat16, --bogus=3]"
    )
    assert "--bogus" in text
    shell.kubectl("apply", "-f", "-", stdin=text)
    yield Fleet(shell, "wrong")
    shell.kubectl("delete", "rlf", "wrong")


def test_status_and_doctor_say_what_an_engine_wrote_that_does_not_start(
    wrong: Fleet, rlf: Run
) -> None:
    def has_it(status: dict[str, Any]) -> bool:
        messages = [worker.get("message", "") for worker in status.get("workers", ())]
        return any("CrashLoopBackOff" in one and WORDS in one for one in messages)

    wrong.wait(has_it, POD_S, "what the engine wrote in status")

    found = json.loads(rlf("doctor", wrong.name, "-o", "json", status=Exit.FAILED))["findings"]
    assert [one["check"] for one in found if WORDS in one["found"]] == ["ContainerCrashes"]


def test_top_reads_the_engines_metrics_and_the_leaders(fleet: Fleet, rlf: Run) -> None:
    (found,) = json.loads(rlf("top", fleet.name, "--interval=1s", "-o", "json"))

    assert [one["running"] is not None for one in found["workers"]] == [True, True]
    assert [one["generated"] is not None for one in found["workers"]] == [True, True]
    assert found["staleness"]["skew"] == 0


def test_plan_is_the_operators_own(fleet: Fleet, rlf: Run) -> None:
    lines = rlf("plan", fleet.name, "--version=step-1").splitlines()

    assert lines[1].strip().startswith("step-0 to step-1 by Rolling: 2 of 2 workers")
    manifest = rlf("plan", fleet.name, "-f", str(stage.DEMO / "fleet.yaml"))
    assert "nothing to do: all workers serve step-0" in manifest


def test_logs_have_the_lines_of_all_three_in_order(fleet: Fleet, rlf: Run) -> None:
    rlf("set-version", fleet.name, "step-1", "--wait")

    lines = [json.loads(line) for line in rlf("logs", fleet.name, "-o", "json").splitlines()]
    sources = {line["source"].rpartition("/")[2] for line in lines}
    assert sources == {"operator", "sidecar", "engine"}
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert sum(line["message"] == "Change succeeded" for line in lines) == 2


def test_a_report_holds_logs_and_metrics_and_no_token(
    fleet: Fleet, rlf: Run, tmp_path: Path
) -> None:
    rlf("report", fleet.name, f"--file={tmp_path / 'r.tar.gz'}")

    with tarfile.open(tmp_path / "r.tar.gz") as packed:
        read = {
            entry.name.partition("/")[2]: found.read().decode()
            for entry in packed.getmembers()
            if (found := packed.extractfile(entry)) is not None
        }
    kept = {name.partition("/")[0] for name in read}
    assert {"logs", "metrics", "objects", "secrets", "versions"} <= kept
    assert "vllm:num_requests_running" in read[f"metrics/{fleet.shell.namespace}/qwen-0.txt"]
    assert [name for name, text in read.items() if fleet.token() in text] == []
