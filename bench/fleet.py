"""One fleet of real workers: changes its version and reads the workers' reports."""

import base64
import json
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import yaml

from bench.cluster import Model
from dev.demo import stage
from dev.shell import Shell
from dev.steps import StepFailed, say
from rlfleet_contract.worker.report import Change, WorkerReport

BOOT_S = 900
_CHANGE_S = 300
_LOOK_S = 0.2
_REST_S = 3.0
"""Between changes: a trainer's are minutes apart, and status is written once a second at most."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One change of version on all workers, by the workers' own words."""

    begun: float
    """When kubectl patch had returned."""
    changes: list[Change]

    @property
    def proved_s(self) -> float:
        """From the patch's return until the last worker had its gate open on the new version."""
        return max(change.finished_at for change in self.changes) - self.begun

    @property
    def windows_s(self) -> float:
        """The pause windows of all workers, which followed one another."""
        return sum(change.timings.window_s for change in self.changes)


class Fleet:
    """One worker at a time is changed: maxUnavailable is 1."""

    def __init__(self, shell: Shell, model: Model) -> None:
        self._shell, self.model = shell, model
        self._size = 0
        self._version = model.versions[0]

    @property
    def version(self) -> str:
        """The version that it was changed to last."""
        return self._version

    @property
    def next(self) -> str:
        """The version that the next change leads to."""
        versions = self.model.versions
        return versions[(versions.index(self._version) + 1) % len(versions)]

    def manifest(self) -> dict[str, Any]:
        """Return the demo's fleet with our model."""
        body: dict[str, Any] = yaml.safe_load((stage.DEMO / "fleet.yaml").read_text())
        body["metadata"]["name"] = self.model.name
        spec = body["spec"]
        spec |= {"replicas": self._size, "weightVersion": self._version}
        spec["model"] |= {"name": self.model.name, "path": f"/data/models/{self.model.name}"}
        return body

    def resize(self, workers: int) -> None:
        """Have so many workers, all proved."""
        say(f"{self.model.name}: {workers} workers starting")
        self._size = workers
        self._shell.kubectl("apply", "-f", "-", stdin=json.dumps(self.manifest()))
        self._wait(BOOT_S)

    def follow(self, strategy: str) -> None:
        """Have the changes from now on made by this strategy."""
        self._patch(rollout={"strategy": strategy})

    def delete(self) -> None:
        """End it, and wait until its pods are gone."""
        self._shell.kubectl("delete", "rlf", self.model.name, "--ignore-not-found")
        label = f"rlfleet.dev/fleet={self.model.name}"
        self._shell.kubectl("wait", "--for=delete", "pod", "-l", label, "--timeout=180s")

    def change(self) -> Measured:
        """Change to the next version."""
        begun = self._declare_next(paused=False)
        return self._changed(begun)

    def prepare(self) -> tuple[float, float]:
        """Have the next version prepared and not loaded; return when that began and ended."""
        begun = self._declare_next(paused=True)
        while {r.prepared for r in self.reports().values()} != {self._version}:
            if time.time() - begun > _CHANGE_S:
                raise StepFailed(f"{self._version} was not prepared within {_CHANGE_S} s")
            time.sleep(_LOOK_S)
        return begun, time.time()

    def release(self) -> Measured:
        """Start the change that was only prepared."""
        begun = time.time()
        self._patch(rollout={"paused": False})
        return self._changed(begun)

    def _declare_next(self, *, paused: bool) -> float:
        self._version = self.next
        time.sleep(_REST_S)
        self._patch(weightVersion=self._version, rollout={"paused": paused})
        return time.time()

    def _patch(self, **spec: Any) -> None:
        patch = json.dumps({"spec": spec})
        self._shell.kubectl("patch", "rlf", self.model.name, "--type=merge", "-p", patch)

    def _changed(self, begun: float) -> Measured:
        self._wait(_CHANGE_S)
        reports = self.reports()
        changes = [r.last_change for r in reports.values() if r.last_change is not None]
        if {r.proved for r in reports.values()} != {self._version} or len(changes) != self._size:
            raise StepFailed(f"not every worker has proved {self._version}: {reports}")
        return Measured(begun, changes)

    def _wait(self, timeout_s: int) -> None:
        flags = ("--for=condition=WeightsSynced", f"--timeout={timeout_s}s")
        self._shell.kubectl("wait", *flags, f"rlf/{self.model.name}")

    def reports(self) -> dict[str, WorkerReport]:
        """Return each worker's report."""
        name = self.model.name
        secret = self._shell.kubectl("get", "secret", f"{name}-admin", "-o=jsonpath={.data.token}")
        workers = [f"{name}-{ordinal}" for ordinal in range(self._size)]
        words = ("exec", "-i", "client", "--", "python3", "/demo/reports.py", name, *workers)
        reply = self._shell.kubectl(*words, stdin=base64.b64decode(secret).decode())
        return {w: WorkerReport.model_validate(r) for w, r in json.loads(reply).items()}


def middle(values: list[float]) -> float:
    """Return the median in milliseconds, to a tenth."""
    return round(median(values) * 1000, 1)
