"""The words in which the end-to-end tests are written: one fleet on a real cluster."""

import asyncio
import json
import string
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from dev.images import names
from dev.shell import Shell
from rlfleet_operator.kube.client import KubeClient, fleet_path
from tests.e2e.history import History, history_of
from tests.e2e.kills import AtStage

FLEET = "qwen"
NAMESPACE = "rlfleet-e2e"
TRAINER = Path(__file__).parent / "trainer.yaml"
RECORD = Path(__file__).parent / "record.py"
LONG = 700
"""Tokens of a request that takes several seconds: far longer than any pause of a test."""
POD_S = 600
"""How long a pod may take to go, and another in its place to begin. An engine that was killed
gives its memory back at the kernel's pace: with two busy cores that took up to four minutes,
and its container is not gone before."""


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

    def declare_until_hit(self, kill: AtStage, *versions: str) -> str:
        """Declare one version after the other until the strike hits its stage; return that one.

        A small model is loaded within 50 ms. With both cores busy, a thread that waits for it
        may sleep through it.
        """
        for version in versions:
            self.declare(version)
            self.wait_synced()
            if kill.is_hit.is_set():
                return version
        raise AssertionError(f"no strike hit its stage on the way to {', '.join(versions)}")

    def scale(self, replicas: int) -> None:
        """Scale as a user does."""
        self.shell.kubectl("scale", f"rlf/{self.name}", f"--replicas={replicas}")

    def patch(self, **spec: Any) -> None:
        """Merge-patch the spec."""
        body = json.dumps({"spec": spec})
        self.shell.kubectl("patch", "rlf", self.name, "--type=merge", "-p", body)

    def patch_quickly(self, versions: Sequence[str], within_s: float) -> list[float]:
        """Declare one version after the other, evenly within this time: kubectl is too slow.

        Returns the moments at which they were declared.
        """

        async def declare_all() -> list[float]:
            settings = client.Configuration()
            await config.load_kube_config(str(self.shell.kubeconfig), client_configuration=settings)
            kube, path = KubeClient(client.ApiClient(settings)), fleet_path(NAMESPACE, self.name)
            moments = []
            try:
                for version in versions:
                    await kube.patch(path, {"spec": {"weightVersion": version}})
                    moments.append(time.monotonic())
                    await asyncio.sleep(within_s / len(versions))
            finally:
                await kube.close()
            return moments

        return asyncio.run(declare_all())

    def reset(self, version: str, replicas: int) -> None:
        """Declare the version, and no word of any earlier test about how it gets there."""
        limits = {"prepareSeconds": 15}
        rollout = {"pauseMode": "Keep", "maxUnavailable": 1, "timeouts": limits}
        spec = {
            "/spec/rollout": rollout,
            "/spec/weightVersion": version,
            "/spec/replicas": replicas,
            "/spec/staleness": {},
        }
        # Of a field that is there or not, "add" is the word for both.
        patch = [{"op": "add", "path": path, "value": value} for path, value in spec.items()]
        self.shell.kubectl("patch", "rlf", self.name, "--type=json", "-p", json.dumps(patch))

    def wait_synced(self, timeout_s: int = 2 * POD_S) -> dict[str, Any]:
        """Wait until every worker proved the declared version; return the status."""
        self.wait(self._is_synced, timeout_s, "WeightsSynced")
        return self.status()

    def wait_phase(self, phase: str, timeout_s: int = 300) -> dict[str, Any]:
        """Wait until the rollout is in a phase; return the status."""
        self.wait(lambda status: status["rollout"]["phase"] == phase, timeout_s, phase)
        return self.status()

    def wait_begun(self, version: str) -> None:
        """Wait until the rollout to a version is on record."""
        self.wait(lambda status: status["rollout"]["to"] == version, 60, f"{version} has begun")

    def wait_serving(self, version: str, timeout_s: int = 300) -> dict[str, Any]:
        """Wait until every worker that takes traffic serves the version; return the status."""
        self.wait(lambda status: status["serving"] == version, timeout_s, f"serving {version}")
        return self.status()

    def wait_restarted(self, worker: str, times: int, timeout_s: float = POD_S) -> None:
        """Wait until a worker's containers were restarted more than so often, and it is ready.

        Until the kubelet reports the end of a killed process, the status knows nothing of it.
        """

        def is_back() -> bool:
            pod = self.pods().get(worker)
            return pod is not None and restarts(pod) > times and is_ready(pod)

        until(is_back, timeout_s, f"{worker} is restarted and ready")

    def wait(self, is_so: Callable[[dict[str, Any]], bool], timeout_s: float, what: str) -> None:
        """Wait until the status, about the newest spec, is so."""

        def is_done() -> bool:
            fleet = self.get()
            status = fleet.get("status", {})
            is_current = status.get("observedGeneration") == fleet["metadata"]["generation"]
            return is_current and is_so(status)

        try:
            until(is_done, timeout_s, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from error

    @staticmethod
    def _is_synced(status: dict[str, Any]) -> bool:
        return any(
            (c["type"], c["status"]) == ("WeightsSynced", "True") for c in status["conditions"]
        )

    def wait_stalled(self) -> dict[str, Any]:
        """Wait until the fleet says that it cannot continue; return the condition."""
        self.shell.kubectl("wait", "--for=condition=Stalled", f"rlf/{self.name}", "--timeout=180s")
        return self.condition("Stalled")

    # --- what there is to see -------------------------------------------------------------------

    def get(self) -> dict[str, Any]:
        """Return the object."""
        found: dict[str, Any] = json.loads(
            self.shell.kubectl("get", "rlf", self.name, "-o", "json")
        )
        return found

    def status(self) -> dict[str, Any]:
        """Return the status."""
        status: dict[str, Any] = self.get()["status"]
        return status

    def token(self) -> str:
        """Return what opens the sidecars' routes."""
        template = "go-template={{.data.token | base64decode}}"
        return self.shell.kubectl("get", "secret", f"{self.name}-admin", "-o", template)

    def versions(self) -> dict[str, str | None]:
        """Return what each worker proved to serve."""
        return {worker["name"]: worker.get("version") for worker in self.status()["workers"]}

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

    def reloads(self) -> dict[str, int]:
        """Return how often each worker has begun to load weights, as its sidecar logs it."""
        found = {}
        for worker in self.pods():
            lines = self.shell.kubectl("logs", worker, "-c", "sidecar").splitlines()
            found[worker] = sum('"event": "Reloading"' in line for line in lines)
        return found

    def reasons(self) -> list[str]:
        """Return the reasons of the fleet's Events."""
        field = f"--field-selector=involvedObject.name={self.name}"
        found = json.loads(self.shell.kubectl("get", "events", field, "-o", "json"))
        return [event["reason"] for event in found["items"]]

    def wait_for_events(self, *reasons: str) -> None:
        """Wait until Events report all this: they are written after the status."""
        until(lambda: set(reasons) <= set(self.reasons()), 60, f"Events: {reasons}")

    @contextmanager
    def under_load(self, tokens: int = 64) -> Iterator[list[Tally]]:
        """Keep requests in flight; the list holds their tally afterwards."""
        words = (
            "python3",
            "/demo/traffic.py",
            f"http://{self._address()}:8000",
            f"--tokens={tokens}",
        )
        clients = self.shell.start("exec", "-i", "client", "--", *words)
        tallies: list[Tally] = []
        try:
            _await_answer(clients)
            yield tallies
            time.sleep(1)
        finally:
            said, _ = clients.communicate(input="", timeout=180)
        found = json.loads(said.strip().splitlines()[-1])
        tallies.append(Tally(found["sent"], found["finished"], found["lost"], found["errors"]))

    def _address(self, worker: str | None = None) -> str:
        """Return the Service's address, or a worker's.

        A name that a slow DNS does not find is no request that we lost.
        """
        of = ("svc", self.name, "-o", "jsonpath={.spec.clusterIP}")
        if worker is not None:
            of = ("pod", worker, "-o", "jsonpath={.status.podIP}")
        return self.shell.kubectl("get", *of)

    @contextmanager
    def recorded(
        self,
        tokens: int = 160,
        clients: int = 4,
        stagger_s: float = 0.1,
        worker: str | None = None,
        rest_s: float = 0.0,
    ) -> Iterator[list[History]]:
        """Keep requests in flight and record each; the list holds their history afterwards.

        They go to the fleet's Service, or all to one worker, which then has long to pause.

        Clients that start one after the other keep their distance: at any time one of
        them has most of its request before it.
        """
        pace = (f"--stagger={stagger_s}", f"--rest={rest_s}")
        flags = (f"--tokens={tokens}", f"--clients={clients}", *pace)
        url = f"http://{self._address(worker)}:8000"
        words = ("python3", "-c", RECORD.read_text(), url, *flags)
        running = self.shell.start("exec", "-i", "client", "--", *words)
        histories: list[History] = []
        said = ""
        try:
            assert running.stdout is not None
            first = running.stdout.readline()
            assert first == "begun\n", first + running.stdout.read()
            yield histories
        finally:
            said, _ = running.communicate(input="", timeout=240)
        histories.append(history_of(json.loads(said.strip().splitlines()[-1])))


def _await_answer(clients: subprocess.Popen[str]) -> None:
    """Wait until clients, which print each second how many were answered, print one."""
    assert clients.stdout is not None
    for line in clients.stdout:
        if not line.startswith("0 "):
            return
    raise AssertionError("the clients ended before they had an answer")


def restarts(pod: dict[str, Any]) -> int:
    """Return how often a pod's containers were restarted."""
    status = pod["status"]
    containers = [
        *status.get("initContainerStatuses", ()),
        *status.get("containerStatuses", ()),
    ]
    return sum(container["restartCount"] for container in containers)


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod takes traffic."""
    conditions = pod["status"].get("conditions", ())
    return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)


class Trainer:
    """Writes checkpoints onto the fleet's volume."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def start(self) -> None:
        """Start the pod that has the volume."""
        text = string.Template(TRAINER.read_text()).substitute(
            WORKER_IMAGE=names.recorded()["worker"]
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
