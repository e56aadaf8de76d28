"""What the demo makes in the cluster, and how it looks at it."""

import json
import string
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from dev import target
from dev.demo import stage
from dev.images import names
from dev.s3 import server
from dev.shell import Shell
from dev.steps import StepFailed, say
from tests.e2e.following import arrange, timeline
from tests.e2e.following.arrange import DATA, FLEET, Manifest, Plan
from tests.e2e.following.observe import Stream
from tests.e2e.scenario import Fleet

HERE = Path(__file__).parent
EXAMPLE = stage.ROOT / "examples" / "trainer"
KEPT = f"{DATA}/kept"
_SCRIPTS = ("ask.py", "kept.py", "reference.py")
_BOOT_S = 900
_DISK_EVERY_S = 2
_CACHE = "/var/cache/rlfleet"
_BUCKET = "/data/training"
_GONE = "--ignore-not-found"
_LAST, _WIDTH = 8, 300


def fresh(shell: Shell) -> None:
    """Begin with nothing of an earlier run: versions of that one have the same names."""
    shell.run("kubectl", "delete", "namespace", shell.namespace, _GONE, "--timeout=300s")
    if not target.is_existing():
        shell.run("kubectl", "delete", "pv", f"checkpoints-{shell.namespace}", _GONE)
    for step in (stage.namespace, stage.volume, stage.scripts, stage.checkpoints, stage.operator):
        step(shell)
    files = [f"--from-file={HERE / name}" for name in _SCRIPTS]
    made = shell.kubectl("create", "configmap", "following", *files, "--dry-run=client", "-o=yaml")
    shell.kubectl("apply", "-f", "-", stdin=made)
    text = string.Template((HERE / "pod.yaml").read_text())
    image = names.recorded()["worker"]
    shell.kubectl("apply", "-f", "-", stdin=text.substitute(WORKER_IMAGE=image))
    shell.kubectl("wait", "--for=condition=Ready", "pod/observer", "--timeout=180s")
    _bring_server(shell)


def _bring_server(shell: Shell) -> None:
    """Put the S3 server's program onto the volume, and remove the versions of an earlier run."""
    at = f"{DATA}/{arrange.SERVER}"
    script = f"rm -rf {KEPT} && mkdir -p $(dirname {at}) && cat > {at}.new && chmod 755 {at}.new"
    words = ["kubectl", "-n", shell.namespace, "exec", "-i", "observer", "--"]
    with server.path().open("rb") as program:
        done = subprocess.run(
            [*words, "sh", "-c", f"{script} && mv {at}.new {at}"],
            stdin=program,
            env=shell.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise StepFailed(f"the S3 server was not brought into the cluster: {done.stderr.strip()}")


def objects(shell: Shell, plan: Plan) -> list[Manifest]:
    """Return the example's objects as this run applies them."""
    text = shell.run("kubectl", "kustomize", str(EXAMPLE))
    return arrange.arranged(yaml.safe_load_all(text), plan)


def apply(shell: Shell, found: list[Manifest]) -> None:
    """Apply objects."""
    shell.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(found))


def start_fleet(shell: Shell, found: list[Manifest]) -> Fleet:
    """Start the store and the fleet, which serves the base model until something is published."""
    apply(shell, arrange.of_kinds(found, "Secret", "Service", "Deployment", "ConfigMap"))
    shell.kubectl("rollout", "status", "deployment/store", "--timeout=180s")
    apply(shell, arrange.of_kinds(found, "RLInferenceFleet"))
    fleet = Fleet(shell, FLEET)
    try:
        fleet.wait_synced(_BOOT_S)
        fleet.wait(lambda status: status["readyReplicas"] == len(fleet.pods()), 60, "all are ready")
    except AssertionError as error:
        raise StepFailed(f"the fleet did not start: {error}") from error
    return fleet


class Streams:
    """What is recorded while the demo runs."""

    def __init__(self, shell: Shell, workers: list[str]) -> None:
        self.status = Stream(shell, "get", "rlf", FLEET, "-w", "-o", timeline.STATUS)
        self.trainer = Stream(shell, "logs", "-f", "job/trainer")
        held = _listing(_CACHE, f"ls {_CACHE} | wc -l")
        self.caches = {
            worker: Stream(shell, "exec", worker, "-c", "sidecar", "--", "sh", "-c", held)
            for worker in workers
        }
        complete = f"ls {_BUCKET}/*/*/model.safetensors.index.json 2>/dev/null | wc -l"
        held = _listing(_BUCKET, complete)
        self.bucket = Stream(shell, "exec", "deployment/store", "--", "sh", "-c", held)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record all of it."""
        with ExitStack() as stack:
            for stream in (self.status, self.trainer, self.bucket, *self.caches.values()):
                stack.enter_context(stream)
            yield


def _listing(directory: str, entries: str) -> str:
    size = f"$(du -sk {directory} 2>/dev/null | cut -f1)"
    return f'while :; do echo "{size} $({entries})"; sleep {_DISK_EVERY_S}; done'


def url(shell: Shell) -> str:
    """Return where the fleet answers, by its address: a slow DNS is no lost request."""
    address = shell.kubectl("get", "svc", FLEET, "-o", "jsonpath={.spec.clusterIP}")
    return f"http://{address}:8000"


def trainer_state(shell: Shell) -> tuple[bool, bool]:
    """Return whether the trainer has ended, and whether it has failed."""
    state = json.loads(shell.kubectl("get", "job", "trainer", "-o", "json"))["status"]
    kinds = {one["type"] for one in state.get("conditions", ()) if one["status"] == "True"}
    return "Complete" in kinds, "Failed" in kinds


def reference(
    shell: Shell, versions: Mapping[str, str], samples: list[list[list[int]]], limit_s: float
) -> Iterator[dict[str, Any]]:
    """Have plain vLLM compute samples under versions; yields a row for each as it comes."""
    task = {
        "model": f"{DATA}/models/qwen",
        "scratch": "/tmp/booted",  # noqa: S108 - an emptyDir of the pod
        "versions": dict(versions),
        "samples": samples,
    }
    words = ("exec", "-i", "observer", "--", "python3", "/following/reference.py")
    process = shell.start(*words)
    limit = threading.Timer(limit_s, process.kill)
    limit.start()
    last: list[str] = []
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(task))
        process.stdin.close()
        for line in process.stdout or ():
            if line.startswith('{"version"'):
                yield json.loads(line)
            else:
                last = [*last[-_LAST:], line[:_WIDTH]]
        if process.wait():
            raise StepFailed(f"the reference failed: {''.join(last)}")
    finally:
        limit.cancel()
        process.kill()


def remove(shell: Shell) -> None:
    """Remove what the demo made, but for the operator."""
    say(f"removing namespace {shell.namespace}")
    shell.run("kubectl", "delete", "namespace", shell.namespace, "--wait=false")
