"""What demo, end-to-end tests and benchmarks begin with, each step safe to repeat.

A cluster, current images, a volume with checkpoints, the operator installed by its
chart, and a pod to send requests from.
"""

import json
import os
import string
from pathlib import Path

from dev import cache, environment, target
from dev.demo import storage
from dev.images import build, names
from dev.shell import Shell
from dev.steps import StepFailed, say

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "dev" / "demo"
TINY_MODEL = ROOT / "examples" / "quick-start" / "checkpoints.py"
OPERATOR_NAMESPACE = "rlfleet-system"
RELEASE = "rlfleet"
DEFINITION = "rlinferencefleets.rlfleet.dev"
FOLDER = "/var/lib/rlfleet-demo"
"""On a user's node without a storage class; it stays when the demo has gone."""
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
    if target.is_existing():
        claim = _users_claim(shell)
    else:
        folder = cache.root() / "volumes" / shell.namespace
        folder.mkdir(parents=True, exist_ok=True)
        # The trainer's pod is not root.
        folder.chmod(0o777)
        _folder(shell, str(folder))
        claim = _filled(DEMO / "volume.yaml", MODE="ReadWriteMany")
    shell.kubectl("apply", "-f", "-", stdin=claim)


def _users_claim(shell: Shell) -> str:
    """Return the claim on what a user's cluster has for it; make the folder if that is one."""
    chosen = _users_storage(shell)
    say(f"The volume for checkpoints: {chosen.why}.")
    if chosen.is_folder:
        _open_folder(shell)
        _folder(shell, FOLDER)
    claim = _filled(DEMO / "volume.yaml", MODE=chosen.mode)
    return claim + (f"  storageClassName: {chosen.class_name}\n" if chosen.class_name else "")


def _users_storage(shell: Shell) -> storage.Storage:
    """Return what the cluster has for a volume that several pods mount."""
    quiet = Shell(shell.kubeconfig, shell.namespace, is_quiet=True)
    nodes, classes = (
        json.loads(quiet.run("kubectl", "get", kind, "--output=json"))["items"]
        for kind in ("nodes", "storageclasses")
    )
    return storage.choose(nodes, classes, environment.variable("STORAGE_CLASS"))


def _folder(shell: Shell, folder: str) -> None:
    names_of = {"VOLUME": volume_name(shell), "NAMESPACE": shell.namespace, "FOLDER": folder}
    shell.run("kubectl", "apply", "-f", "-", stdin=_filled(DEMO / "folder.yaml", **names_of))


def volume_name(shell: Shell) -> str:
    """Return the name of the volume that is a folder."""
    return f"checkpoints-{shell.namespace}"


def _open_folder(shell: Shell) -> None:
    """Make the folder on the user's node, by a pod that is root there."""
    own = Shell(shell.kubeconfig, f"{shell.namespace}-folder")
    image = names.recorded()["worker"]
    text = _filled(
        DEMO / "writable.yaml", NAMESPACE=own.namespace, FOLDER=FOLDER, WORKER_IMAGE=image
    )
    try:
        own.run("kubectl", "apply", "-f", "-", stdin=text)
        _complete(own, "writable")
    finally:
        own.run("kubectl", "delete", "namespace", own.namespace, "--wait=false")


def checkpoints(shell: Shell) -> None:
    """Have a Job write the model and step-0 to step-3; wait until they are there."""
    shell.kubectl("delete", "job", "checkpoints", "--ignore-not-found")
    text = _filled(DEMO / "checkpoints.yaml", WORKER_IMAGE=names.recorded()["worker"])
    shell.kubectl("apply", "-f", "-", stdin=text)
    _complete(shell, "checkpoints")


def _complete(shell: Shell, job: str) -> None:
    """Wait for a Job; a failure names what the cluster warned of, such as an image or a claim."""
    try:
        shell.kubectl("wait", "--for=condition=complete", f"job/{job}", "--timeout=300s")
    except StepFailed as failure:
        events = shell.kubectl("get", "events", "--field-selector=type=Warning", check=False)
        raise StepFailed(f"{failure}; the namespace's warnings:\n{events.strip()}") from failure


def scripts(shell: Shell) -> None:
    """Bring the scripts that run in pods."""
    scripts = (DEMO / "ask.py", DEMO / "traffic.py", TINY_MODEL)
    files = [f"--from-file={_shown(script)}" for script in scripts]
    made = shell.kubectl("create", "configmap", "demo", *files, "--dry-run=client", "-o=yaml")
    shell.kubectl("apply", "-f", "-", stdin=made)


def fleet(shell: Shell, manifest: str) -> None:
    """Make a fleet as its manifest has it, also if one is there.

    kubectl apply would leave what a user has patched into it since, such as spec.adapters, whose
    arguments of the engine it takes away: the API server rejects that.
    """
    is_there = shell.kubectl("get", "-f", manifest, "--ignore-not-found", "-o=name").strip()
    shell.kubectl(*(("replace", "--save-config") if is_there else ("apply",)), "-f", manifest)


def client(shell: Shell) -> None:
    """Start the pod from which requests are sent."""
    text = _filled(DEMO / "client.yaml", WORKER_IMAGE=names.recorded()["worker"])
    # A new image would restart its container behind the condition Ready.
    shell.kubectl("delete", "pod", "client", "--ignore-not-found", "--grace-period=1")
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
        *(definition_values(shell) if target.is_existing() else ()),
        *more,
        "--wait",
        "--timeout=180s",
    )


def definition_values(shell: Shell) -> list[str]:
    """Return the value that leaves the definition alone, if another than this release made it."""
    words = ("get", "crd", DEFINITION, "--ignore-not-found", "--output=json")
    found = Shell(shell.kubeconfig, shell.namespace, is_quiet=True).kubectl(*words)
    notes = json.loads(found)["metadata"].get("annotations") or {} if found.strip() else {}
    owner = tuple(notes.get(f"meta.helm.sh/release-{part}") for part in ("namespace", "name"))
    if not found.strip() or owner == (OPERATOR_NAMESPACE, RELEASE):
        return []
    say(f"{DEFINITION} is installed here already, and is used as it is.")
    return ["--set=crds.enabled=false"]


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


def everything(shell: Shell, *values: str) -> None:
    """Bring a namespace to where a fleet can be applied; `values` are the operator's."""
    namespace(shell)
    volume(shell)
    scripts(shell)
    checkpoints(shell)
    operator(shell, *values)
    client(shell)
    say("")


def _shown(path: Path) -> str:
    """Return a path as a person would type it."""
    return os.path.relpath(path)


def _filled(path: Path, **values: str) -> str:
    return string.Template(path.read_text()).substitute(values)
