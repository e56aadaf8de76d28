"""The one-node cluster as a whole: bring it up, look at it, take it down.

`up` may be interrupted anywhere and run again: each step looks at what is there
and does what is missing. The images that the node itself needs are made here;
`dev.images` makes ours.
"""

import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dev import cache, steps
from dev.kubernetes import apiserver, binaries
from dev.node import components, layout, namespaces, oci, store
from dev.python import packages
from dev.steps import Step, StepFailed

# Tests may run during its start.
READY_S = 300.0
# Of a log line in an error message; klog's may be pages long.
LINE_LENGTH = 160


def up(*lanes: list[Step]) -> Path:
    """Make sure that the cluster runs, with other steps at the same time; return its kubeconfig."""
    _require_root()
    cache.folder("cluster")
    with cache.lock("cluster"):
        steps.run(_ready_steps(), *lanes)
        if namespaces.current():
            _say_what_ended()
            steps.say("the cluster is already up")
        steps.run(_start_steps())
        _refuse_another_release()
    return layout.kubeconfig()


def down() -> None:
    """End the cluster; the images stay in the cache."""
    _require_root()
    cache.folder("cluster")
    with cache.lock("cluster"):
        steps.say("the cluster is down" if namespaces.end() else "the cluster was not up")


def is_up() -> bool:
    """Return whether the development cluster runs."""
    return namespaces.current() is not None


def status() -> None:
    """Print each component and whether it lives."""
    if not is_up():
        steps.say("the cluster is down")
        return
    for name, facts in _report().items():
        said = (
            f"ended with {facts['ended']}"
            if "ended" in facts
            else f"runs, pid {facts['pid']} inside"
        )
        steps.say(f"{name:<20} {said}; log: {layout.logs() / name}.log")
    steps.say(kubectl("get", "nodes,pods", "--all-namespaces", "--output=wide"))
    steps.say(f"export KUBECONFIG={layout.kubeconfig()}")


def kubectl(*argv: str, stdin: str | None = None) -> str:
    """Run kubectl as cluster-admin and return what it prints."""
    command = [str(binaries.path("kubectl")), "--kubeconfig", str(layout.kubeconfig()), *argv]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StepFailed(f"`kubectl {' '.join(argv)}`: {done.stderr.strip()}")
    return done.stdout


def _ready_steps() -> list[Step]:
    return [*packages.steps(packages.NODE), *binaries.build_steps(binaries.NODE)]


def _start_steps() -> list[Step]:
    """Return what is between now and a ready cluster."""
    start = [] if namespaces.current() else [Step("starting the node", _start)]
    if not start and _is_ready():
        return []
    images = [
        Step(f"loading {name}", functools.partial(_load, name)) for name in ("pause", "coredns")
    ]
    return [
        *start,
        Step("waiting for containerd", lambda: _wait(_has_containerd)),
        *images,
        Step("waiting for the API", lambda: _wait(_has_api)),
        Step("applying DNS", _apply_dns),
        Step("waiting for node and DNS", lambda: _wait(_is_ready)),
    ]


def _start() -> None:
    namespaces.refuse_others()
    namespaces.end()
    for folder in (layout.state(), layout.logs()):
        folder.mkdir(parents=True, exist_ok=True)
    namespaces.start(components.plan(_image("pause")))


def _refuse_another_release() -> None:
    runs = json.loads(kubectl("version", "--output=json"))["serverVersion"]["gitVersion"]
    if runs != binaries.release():
        raise StepFailed(
            f"the cluster runs Kubernetes {runs}, not {binaries.release()}; "
            "run `make cluster-down` first"
        )


def _image(program: str) -> str:
    return f"rlfleet.local/{program}:{cache.digest(binaries.path(program))}"


def _load(program: str) -> str | None:
    if _image(program) in store.names():
        return "there"
    with tempfile.TemporaryDirectory(dir=cache.folder("images")) as scratch:
        manifest = oci.write(Path(scratch), binaries.path(program))
        store.load(_image(program), manifest, Path(scratch))
    return None


def _apply_dns() -> None:
    text = components.filled("dns.yaml", IMAGE=_image("coredns"))
    kubectl("apply", "--filename=-", stdin=text)


def _has_containerd() -> bool:
    holder = namespaces.current()
    report = _report()
    if not holder or "containerd" not in report:
        return False
    probe = holder.inside(*layout.CTR, "version")
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _has_api() -> bool:
    try:
        # Not the host's file, which kubectl rewrites as YAML when a user sets a namespace.
        admin = layout.endpoints().kubeconfig("admin").read_text()
        token = json.loads(admin)["users"][0]["user"]["token"]
    except (OSError, ValueError):
        return False
    return apiserver.is_ready(layout.endpoints(), token)


def _is_ready() -> bool:
    if not _has_api():
        return False
    jsonpath = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    if "True" not in kubectl("get", "nodes", f"--output={jsonpath}"):
        return False
    ready = "jsonpath={.status.readyReplicas}"
    dns = kubectl(
        "--namespace=kube-system",
        "get",
        "deployment",
        "coredns",
        "--ignore-not-found",
        f"--output={ready}",
    )
    return dns == "1"


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while not is_done():
        _say_what_ended()
        if time.monotonic() > deadline:
            raise StepFailed(f"not ready after {READY_S:.0f} s; logs are in {layout.logs()}")
        time.sleep(0.1)


def _say_what_ended() -> None:
    """Raise if a component or the node itself has ended: nothing restarts it."""
    if not namespaces.current():
        raise StepFailed(f"the node ended: {_tail('supervisor')}")
    for name, facts in _report().items():
        if "ended" in facts:
            raise StepFailed(
                f"{name} exited with {facts['ended']}; run `make cluster-down cluster`. "
                f"{_tail(name)}"
            )


def _report() -> dict[str, dict[str, int]]:
    try:
        report: dict[str, dict[str, int]] = json.loads(layout.report_file().read_text())
    except (OSError, ValueError):
        return {}
    return report


def _tail(name: str) -> str:
    log = layout.logs() / f"{name}.log"
    lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
    return "\n".join([f"the end of {log}:", *(line[:LINE_LENGTH] for line in lines)])


def _require_root() -> None:
    if os.geteuid() or not shutil.which("unshare"):
        message = (
            "a cluster of our own needs root and Linux; run as root, "
            "or set CLUSTER=existing and KUBECONFIG to use a cluster that you have"
        )
        raise StepFailed(message)
