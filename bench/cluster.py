"""The namespace of the benchmarks with real vLLM, deleted after each run.

The checkpoints on the volume stay in the cache for the next run.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dev import cache, target
from dev.demo import stage
from dev.images import names
from dev.shell import Shell
from dev.steps import say

NAMESPACE = "rlfleet-bench"
_PODS = cache.REPOSITORY / "bench" / "pods"
_USER = 65532


@dataclass(frozen=True, slots=True)
class Model:
    """A model of random weights, made on the spot, and its versions."""

    name: str
    hidden: int
    layers: int
    steps: int = 2

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions through which is changed, around and around."""
        return tuple(f"{self.name}-{step}" for step in range(self.steps))


TINY = Model("tiny", hidden=64, layers=2)
LARGE = Model("large", hidden=1536, layers=20)
"""0.99 GiB of bfloat16."""


@contextmanager
def ready(*, as_it_is: bool) -> Iterator[Shell]:
    """Make the namespace ready for fleets; leave nothing of it behind.

    ``as_it_is`` takes cluster, images and operator as they are: for a cluster in which
    others work at the same time.
    """
    kubeconfig = target.kubeconfig() if as_it_is else stage.cluster_and_images()
    shell = Shell(kubeconfig, NAMESPACE, is_quiet=True)
    _clear(shell)
    try:
        stage.namespace(shell)
        stage.volume(shell)
        _scripts(shell)
        if not as_it_is:
            stage.operator(shell)
        stage.client(shell)
        yield shell
    finally:
        _clear(shell)


def _clear(shell: Shell) -> None:
    shell.run("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=300s")
    if not target.is_existing():
        # A volume that was bound once binds to no other claim.
        shell.run("kubectl", "delete", "pv", f"checkpoints-{NAMESPACE}", "--ignore-not-found")


def _scripts(shell: Shell) -> None:
    files = [*_PODS.glob("*.py"), stage.TINY_MODEL]
    flags = [f"--from-file={path}" for path in files]
    made = shell.kubectl("create", "configmap", "demo", *flags, "--dry-run=client", "-o=yaml")
    shell.kubectl("apply", "-f", "-", stdin=made)


def write_checkpoints(shell: Shell, model: Model) -> None:
    """Have a pod write the model and its versions."""
    say(f"writing {model.name} and {', '.join(model.versions)}")
    size = (f"--hidden={model.hidden}", f"--layers={model.layers}")
    names_of = (f"--name={model.name}", f"--prefix={model.name}-", f"--steps={model.steps}")
    run_script(shell, "checkpoints.py", "/data", *size, *names_of)


def run_script(shell: Shell, script: str, *words: str) -> None:
    """Run one of our scripts in a pod of the worker image, to its end."""
    shell.kubectl("delete", "job", "script", "--ignore-not-found")
    shell.kubectl(
        "apply", "-f", "-", stdin=json.dumps(_job(["python3", f"/demo/{script}", *words]))
    )
    shell.kubectl("wait", "--for=condition=complete", "job/script", "--timeout=600s")


def _job(command: list[str]) -> dict[str, object]:
    container = {
        "name": "script",
        "image": names.recorded()["worker"],
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - an emptyDir of the pod
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/demo"},
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the same
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "scripts", "configMap": {"name": "demo"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "checkpoints"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "script"},
        "spec": {"backoffLimit": 1, "template": {"spec": pod}},
    }
