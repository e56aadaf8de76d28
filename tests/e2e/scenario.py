"""The words in which the end-to-end tests are written: one fleet on a real cluster."""

import json
import string
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev import stage
from dev.images import names
from dev.shell import Shell

FLEET = "qwen"
NAMESPACE = "rlfleet-e2e"
TRAINER = Path(__file__).parent / "trainer.yaml"


@dataclass(frozen=True)
class Tally:
    """What became of the requests sent during something."""

    sent: int
    finished: dict[str, int]
    lost: int
    errors: dict[str, int]


class Fleet:
    """A fleet of real vLLM workers, as its user sees it."""

    def __init__(self, shell: Shell, name: str = FLEET) -> None:
        self.shell, self.name = shell, name

    # --- what the user does ---------------------------------------------------------------------

    def declare(self, version: str, **spec: Any) -> None:
        """Patch spec.weightVersion, and more of the spec."""
        patch = json.dumps({"spec": {"weightVersion": version} | spec})
        self.shell.kubectl("patch", "rlf", self.name, "--type=merge", "-p", patch)

    def scale(self, replicas: int) -> None:
        """Scale as a user does."""
        self.shell.kubectl("scale", f"rlf/{self.name}", f"--replicas={replicas}")

    def wait_synced(self, timeout_s: int = 300) -> dict[str, Any]:
        """Wait until every worker proved the declared version; return the status."""
        words = ("--for=condition=WeightsSynced", f"rlf/{self.name}", f"--timeout={timeout_s}s")
        try:
            self.shell.kubectl("wait", *words)
        except Exception as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error
        return self.status()

    def wait_stalled(self) -> dict[str, Any]:
        """Wait until the fleet says that it cannot go on; return the condition."""
        self.shell.kubectl("wait", "--for=condition=Stalled", f"rlf/{self.name}", "--timeout=60s")
        return self.condition("Stalled")

    # --- what there is to see -------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the status."""
        found = self.shell.kubectl("get", "rlf", self.name, "-o", "json")
        status: dict[str, Any] = json.loads(found)["status"]
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """Return one condition."""
        return next(c for c in self.status()["conditions"] if c["type"] == kind)

    def describe(self) -> str:
        """Return everything that helps to understand a failure."""
        about = self.shell.kubectl("describe", "rlf", self.name, check=False)
        return about + self.shell.kubectl("get", "pods", "-o", "wide", check=False)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the workers' pods by name."""
        words = ("get", "pods", "-l", f"rlfleet.dev/fleet={self.name}", "-o", "json")
        found = json.loads(self.shell.kubectl(*words))
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    def identities(self) -> dict[str, tuple[str, int]]:
        """Return each pod's uid and how often its containers were restarted."""
        return {name: (pod["metadata"]["uid"], restarts(pod)) for name, pod in self.pods().items()}

    def answers(self) -> dict[str, list[int]]:
        """Send the same greedy prompt to each worker; return the tokens."""
        workers = sorted(self.pods())
        words = ("exec", "client", "--", "python3", "/demo/ask.py", self.name, *workers)
        lines = self.shell.kubectl(*words).splitlines()
        return {answer["worker"]: answer["tokens"] for answer in map(json.loads, lines)}

    def reasons(self) -> list[str]:
        """Return the reasons of the fleet's Events."""
        field = f"--field-selector=involvedObject.name={self.name}"
        found = json.loads(self.shell.kubectl("get", "events", field, "-o", "json"))
        return [event["reason"] for event in found["items"]]

    @contextmanager
    def under_load(self, tokens: int = 64) -> Iterator[list[Tally]]:
        """Keep requests in flight; the list holds their tally afterwards."""
        url = f"http://{self.name}:8000"
        words = ("python3", "/demo/traffic.py", url, f"--tokens={tokens}")
        clients = self.shell.start("exec", "-i", "client", "--", *words)
        tallies: list[Tally] = []
        try:
            time.sleep(3)
            yield tallies
            time.sleep(2)
        finally:
            said, _ = clients.communicate(input="", timeout=180)
        found = json.loads(said.strip().splitlines()[-1])
        tallies.append(Tally(found["sent"], found["finished"], found["lost"], found["errors"]))


def restarts(pod: dict[str, Any]) -> int:
    """Return how often a pod's containers were restarted."""
    status = pod["status"]
    containers = [
        *status.get("initContainerStatuses", ()),
        *status.get("containerStatuses", ()),
    ]
    return sum(container["restartCount"] for container in containers)


class Trainer:
    """Writes checkpoints onto the fleet's volume."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def start(self) -> None:
        """Start the pod that has the volume."""
        text = string.Template(TRAINER.read_text()).substitute(
            OPERATOR_IMAGE=names.recorded()["operator"]
        )
        self._shell.kubectl("apply", "-f", "-", stdin=text)
        self._shell.kubectl("wait", "--for=condition=Ready", "pod/trainer", "--timeout=120s")

    def write(self, version: str, like: str, spoil: str = "pass") -> None:
        """Copy a good version, run ``spoil`` on it (Python; ``d`` is its directory)."""
        code = (
            "import pathlib, shutil, os\n"
            f"d = pathlib.Path('/data/weights/{version}')\n"
            "d.is_symlink() and d.unlink()\n"
            "shutil.rmtree(d, ignore_errors=True)\n"
            f"shutil.copytree('/data/weights/{like}', d)\n"
            f"f = d / 'model.safetensors'\n{spoil}\n"
        )
        self._shell.kubectl("exec", "trainer", "--", "python3", "-c", code)


def until(is_done: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + timeout_s
    while not is_done():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.3)


def kill_engine_core(shell: Shell, pod: str) -> None:
    """Kill vLLM's engine process as the kernel's out-of-memory killer does."""
    code = (
        "import os, signal, pathlib\n"
        "for p in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        "    pid = int(p.parent.name)\n"
        "    if p.read_bytes().startswith(b'VLLM::EngineCore'):\n"
        "        os.kill(pid, signal.SIGKILL)\n"
        "        print('killed', pid)\n"
    )
    said = shell.kubectl("exec", pod, "-c", "engine", "--", "python3", "-c", code)
    assert "killed" in said


def kill_operator(shell: Shell) -> None:
    """End the operator as a lost node does: at once, without a word."""
    flags = ("--all", "--grace-period=0", "--force")
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "delete", "pod", *flags)
    shell.run(*words)


def leader(shell: Shell) -> str:
    """Return the operator's pod that leads."""
    path = "jsonpath={.spec.holderIdentity}"
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "get", "lease", stage.RELEASE, "-o", path)
    return shell.run(*words).partition("_")[0]


def is_ended(process: subprocess.Popen[str]) -> bool:
    """Tell whether a background command has ended."""
    return process.poll() is not None
