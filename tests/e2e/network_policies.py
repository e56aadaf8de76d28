"""Which pod reaches what, with the chart's NetworkPolicies and without.

A network plugin that enforces them runs on the node for this long. Pods connect as a stranger, a
trainer, a sampler, Prometheus and another worker; then a fleet changes its weights.
Run it: python -m tests.e2e.network_policies
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from dev import steps, target
from dev.demo import stage
from dev.images import build, names
from dev.policies import enforcer
from dev.shell import Shell
from dev.steps import StepFailed, say
from tests.e2e.evidence import gathered
from tests.e2e.scenario import FLEET, Fleet, until

NAMESPACE = "rlfleet-policies"
OWN, RELEASE = f"{NAMESPACE}-system", "policies"
WORKER = {"app.kubernetes.io/name": "rlfleet", "app.kubernetes.io/component": "worker"}
PODS: dict[str, dict[str, str]] = {
    "stranger": {},
    "trainer": {"rlfleet.dev/trainer": "true"},
    "sampler": {"rlfleet.dev/sampler": "true"},
    "prometheus": {"app": "prometheus"},
    "colleague": WORKER,
}
PORTS = {
    "sidecar": (f"{FLEET}-0.{FLEET}-workers", 8090),
    "engine": (FLEET, 8000),
    "fleet API": (f"{RELEASE}.{OWN}", 8082),
    "metrics": (f"{RELEASE}-metrics.{OWN}", 8081),
}
LET_IN: dict[str, set[str]] = {
    "stranger": set(),
    "trainer": {"sidecar", "fleet API"},
    "sampler": {"engine"},
    "prometheus": {"engine", "metrics"},
    "colleague": {"sidecar"},
}
_CONNECT = """
import json, socket, sys
def is_open(host, port):
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True
print(json.dumps({name: is_open(*place) for name, place in json.loads(sys.argv[1]).items()}))
"""
_BOOT_S, _CHANGE_S, _HOLD_S = 900, 300, 120

Reached = dict[str, set[str]]


def main() -> None:
    """Show it; exit with 1 if a policy lets in too much or too little."""
    if target.is_existing():
        raise StepFailed("this runs on the development cluster, whose plugin it replaces")
    steps.run(enforcer.build_steps())
    build.make()
    shell = Shell(target.kubeconfig(), NAMESPACE, is_quiet=True)
    try:
        _prepare(shell)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "enforcer.log"
            with enforcer.enforcing(log):
                _show(shell)
    except (StepFailed, AssertionError):
        say(gathered(shell))
        raise
    finally:
        _remove(shell)


def _prepare(shell: Shell) -> None:
    """Bring up operator, fleet and pods, without policies."""
    say("an operator, a fleet of one worker, and five pods")
    _remove(shell)
    for step in (stage.namespace, stage.volume, stage.scripts, stage.checkpoints):
        step(shell)
    shell.run("kubectl", "apply", "--server-side", "--filename", str(stage.ROOT / "crds"))
    _install(shell, "--create-namespace", "--set=networkPolicy.enabled=false")
    shell.kubectl("apply", "--filename", str(stage.DEMO / "fleet.yaml"))
    shell.kubectl("patch", "rlf", FLEET, "--type=merge", "--patch", '{"spec": {"replicas": 1}}')
    pods = [_pod(name, labels) for name, labels in PODS.items()]
    items = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    shell.kubectl("apply", "--filename=-", stdin=items)
    shell.kubectl("wait", "--for=condition=Ready", "--timeout=300s", *(f"pod/{n}" for n in PODS))
    Fleet(shell).wait_synced(_BOOT_S)


def _show(shell: Shell) -> None:
    everything = {name: set(PORTS) for name in PODS}
    _await(shell, everything, "without policies")
    _install(shell, "--set=networkPolicy.enabled=true")
    # New pods, with connections of their own to the sidecars.
    shell.run("kubectl", f"--namespace={OWN}", "rollout", "restart", f"deployment/{RELEASE}")
    shell.run("kubectl", f"--namespace={OWN}", "rollout", "status", f"deployment/{RELEASE}")
    _await(shell, LET_IN, "with policies")
    fleet = Fleet(shell)
    fleet.declare("step-1")
    fleet.wait_synced(_CHANGE_S)
    say("a rollout to step-1: proved, with policies")
    told = shell.kubectl("exec", "sampler", "--", "python3", "/demo/ask.py", FLEET, f"{FLEET}-0")
    say(f"the sampler's request: {told.strip()}")
    _await(shell, LET_IN, "after the rollout")
    _install(shell, "--set=networkPolicy.enabled=false")
    _await(shell, everything, "without policies again")
    say("ok: the policies hold, and let through what must pass")


def _install(shell: Shell, *words: str) -> None:
    repository, _, tag = names.recorded()["operator"].rpartition(":")
    here = {"kubernetes.io/metadata.name": NAMESPACE}
    values = {
        "image": {"repository": repository, "tag": tag},
        "worker": {"image": names.recorded()["worker"]},
        "replicas": 1,
        "namespaces": [NAMESPACE],
        "crds": {"enabled": False},
        "rbac": {"userRoles": False},
        "metrics": {"service": True},
        "networkPolicy": {
            "prometheus": [
                {
                    "namespaceSelector": {"matchLabels": here},
                    "podSelector": {"matchLabels": PODS["prometheus"]},
                }
            ]
        },
    }
    chart = str(stage.ROOT / "charts" / "rlfleet")
    command = ("helm", "upgrade", "--install", RELEASE, chart, f"--namespace={OWN}", "--values=-")
    shell.run(*command, *words, "--wait", "--timeout=300s", stdin=json.dumps(values))


def _pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the demo's client under another name and with labels."""
    text = (stage.DEMO / "client.yaml").read_text()
    pod: dict[str, Any] = yaml.safe_load(
        text.replace("${WORKER_IMAGE}", names.recorded()["worker"])
    )
    return {**pod, "metadata": {"name": name, "labels": labels}}


def _await(shell: Shell, wanted: Reached, when: str) -> None:
    """Wait until each pod reaches what it must, and nothing else; print it."""
    seen: list[Reached] = []

    def is_so() -> bool:
        seen.append({name: _reached(shell, name) for name in PODS})
        return seen[-1] == wanted

    try:
        until(is_so, _HOLD_S, "the policies to take effect")
    finally:
        say(f"{when}:")
        for name, reached in seen[-1].items():
            cells = [f"{port} {'yes' if port in reached else 'no'}" for port in PORTS]
            mark = "" if reached == wanted[name] else "   WRONG"
            say(f"  {name:<11} {'   '.join(cells)}{mark}")


def _reached(shell: Shell, name: str) -> set[str]:
    words = ("exec", name, "--", "python3", "-c", _CONNECT, json.dumps(PORTS))
    return {port for port, is_open in json.loads(shell.kubectl(*words)).items() if is_open}


def _remove(shell: Shell) -> None:
    """Leave nothing behind; the definition stays."""
    shell.kubectl("delete", "rlf", "--all", "--ignore-not-found", check=False)
    shell.run("helm", "uninstall", RELEASE, f"--namespace={OWN}", "--ignore-not-found", check=False)
    for name in (NAMESPACE, OWN):
        shell.run("kubectl", "delete", "namespace", name, "--ignore-not-found")
    shell.run("kubectl", "delete", "pv", f"checkpoints-{NAMESPACE}", "--ignore-not-found")


if __name__ == "__main__":
    steps.main(main)
