"""What demo, end-to-end tests and benchmarks begin with, each step safe to repeat.

A cluster, current images, a volume with checkpoints, the operator installed by its
chart, and a pod to send requests from.
"""

import json
import os
import string
from pathlib import Path

from dev import cache, target
from dev.images import build, names
from dev.shell import Shell
from dev.steps import say

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "dev" / "demo"
OPERATOR_NAMESPACE = "rlfleet-system"
RELEASE = "rlfleet"
_OURS = "demo"
MARK = f"--set=podAnnotations.installed-by={_OURS}"
"""Marks a release that the demo installed. As a Helm value it also marks a failed installation, and
an upgrade with a user's own values removes it."""


def cluster_and_images() -> Path:
    """Make sure of both; return the kubeconfig."""
    build.make()
    return target.kubeconfig()


def namespace(shell: Shell) -> None:
    """Make the namespace, in which Pod Security admits restricted pods only."""
    body = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {shell.namespace}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""
    shell.run("kubectl", "apply", "-f", "-", stdin=body)


def volume(shell: Shell) -> None:
    """Make the volume that stands for the trainer's shared file system."""
    if not target.is_existing():
        folder = cache.root() / "volumes" / shell.namespace
        folder.mkdir(parents=True, exist_ok=True)
        # The trainer's pod is not root.
        folder.chmod(0o777)
        text = _filled(
            DEMO / "folder.yaml",
            VOLUME=f"checkpoints-{shell.namespace}",
            NAMESPACE=shell.namespace,
            FOLDER=str(folder),
        )
        shell.run("kubectl", "apply", "-f", "-", stdin=text)
    shell.kubectl("apply", "-f", _shown(DEMO / "volume.yaml"))


def checkpoints(shell: Shell) -> None:
    """Have a Job write the model and step-0 to step-3; wait until they are there."""
    shell.kubectl("delete", "job", "checkpoints", "--ignore-not-found")
    text = _filled(DEMO / "checkpoints.yaml", WORKER_IMAGE=names.recorded()["worker"])
    shell.kubectl("apply", "-f", "-", stdin=text)
    shell.kubectl("wait", "--for=condition=complete", "job/checkpoints", "--timeout=300s")


def scripts(shell: Shell) -> None:
    """Bring the scripts that run in pods."""
    scripts = ("ask.py", "traffic.py", "checkpoints.py")
    files = [f"--from-file={_shown(DEMO / name)}" for name in scripts]
    made = shell.kubectl("create", "configmap", "demo", *files, "--dry-run=client", "-o=yaml")
    shell.kubectl("apply", "-f", "-", stdin=made)


def client(shell: Shell) -> None:
    """Start the pod from which requests are sent."""
    text = _filled(DEMO / "client.yaml", WORKER_IMAGE=names.recorded()["worker"])
    shell.kubectl("apply", "-f", "-", stdin=text)
    shell.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=120s")


def operator(shell: Shell, *more: str) -> None:
    """Install or upgrade the operator by its chart; one that a user has installed is left."""
    if target.is_existing() and _installer(shell) not in {None, _OURS}:
        say("The operator is installed here already, and is used as it is.")
        return
    repository, _, tag = names.recorded()["operator"].rpartition(":")
    shell.run(
        "helm",
        "upgrade",
        "--install",
        RELEASE,
        _shown(ROOT / "charts" / "rlfleet"),
        f"--namespace={OPERATOR_NAMESPACE}",
        "--create-namespace",
        f"--set=image.repository={repository}",
        f"--set=image.tag={tag}",
        f"--set=worker.image={names.recorded()['worker']}",
        MARK,
        *more,
        "--wait",
        "--timeout=180s",
    )


def remove_operator(shell: Shell) -> None:
    """Uninstall the operator, if it was installed here."""
    if _installer(shell) == _OURS:
        shell.run("helm", "uninstall", RELEASE, f"--namespace={OPERATOR_NAMESPACE}")


def _installer(shell: Shell) -> str | None:
    """Return the release's mark: None without a release, empty without a mark."""
    how = (f"--namespace={OPERATOR_NAMESPACE}", "--output=json")
    if not json.loads(shell.run("helm", "list", "--all", f"--filter=^{RELEASE}$", *how)):
        return None
    values = json.loads(shell.run("helm", "get", "values", RELEASE, *how)) or {}
    return str((values.get("podAnnotations") or {}).get("installed-by", ""))


def everything(shell: Shell) -> None:
    """Bring a namespace to where a fleet can be applied."""
    namespace(shell)
    volume(shell)
    scripts(shell)
    checkpoints(shell)
    operator(shell)
    client(shell)
    say("")


def _shown(path: Path) -> str:
    """Return a path as a person would type it."""
    return os.path.relpath(path)


def _filled(path: Path, **values: str) -> str:
    return string.Template(path.read_text()).substitute(values)
