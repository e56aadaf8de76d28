"""The demo, as `make demo` runs it: python3 -m dev.demo up | down.

Prints every command as it runs it, and fails unless the tokens change, equal on every worker,
no pod restarts and no request is lost.
"""

import argparse
import json
import os
import threading
import time
from dataclasses import dataclass
from typing import IO, Any

from dev import steps, target
from dev.demo import stage
from dev.kubernetes import binaries
from dev.node import cluster
from dev.shell import Shell
from dev.steps import StepFailed, say

NAMESPACE = "rlfleet-demo"
FLEET = "qwen"
BEFORE, AFTER = "step-0", "step-1"
_REST_S = 600


def main() -> None:
    """Do what the one argument says."""
    commands = {"up": up, "down": down}
    parser = argparse.ArgumentParser(prog="python -m dev.demo", description=__doc__)
    parser.add_argument("command", choices=commands)
    commands[parser.parse_args().command]()


def up() -> None:
    """Show a weight change, from nothing."""
    started = time.monotonic()
    _title("A cluster, and images of operator and worker")
    shell = Shell(stage.cluster_and_images(), NAMESPACE)
    _title("Checkpoints on a volume, the operator, a pod to ask from")
    # On a cluster of others, it drives no fleet but the demo's.
    only_here = [f"--set=namespaces={{{NAMESPACE}}}"] if target.is_existing() else []
    stage.everything(shell, *only_here)
    _title("A fleet of two workers")
    # A demo that ran before left the fleet at another version: begin where it begins.
    stage.fleet(shell, os.path.relpath(stage.DEMO / "fleet.yaml"))
    _synced(shell)
    _at_rest(shell)
    shell.show("get", "rlf,pods", "-o", "wide")
    _change(shell)
    _title("What there is now")
    shell.show("get", "rlf", FLEET, "-o", "wide")
    _explain(shell)
    say(f"\nDone in {time.monotonic() - started:.0f} s. {_next(shell)}")


def down() -> None:
    """Take away what the demo has made; on a cluster of yours see docs/how-to/install.md."""
    if not target.is_existing():
        cluster.down()
        return
    shell = Shell(target.kubeconfig(), NAMESPACE)
    shell.run("kubectl", "delete", "namespace", NAMESPACE, "--ignore-not-found")
    shell.run("kubectl", "delete", "pv", stage.volume_name(shell), "--ignore-not-found")
    stage.remove_operator(shell)


@dataclass(frozen=True)
class Answers:
    """What workers said to one prompt, and which pods they were."""

    tokens: dict[str, list[int]]
    pods: dict[str, tuple[str, int]]
    """uid and restarts of each."""


def _change(shell: Shell) -> None:
    _title("The same greedy prompt to each worker")
    before = _ask(shell)
    _title(f"{BEFORE} to {AFTER}, with requests in flight")
    traffic = shell.start("exec", "-i", "client", "--", "python3", "/demo/traffic.py", _url())
    watch = shell.start("get", "rlf", FLEET, "-w")
    _echo(watch.stdout)
    time.sleep(3)
    patched_at = time.monotonic()
    patch = json.dumps({"spec": {"weightVersion": AFTER}})
    shell.kubectl("patch", "rlf", FLEET, "--type=merge", "-p", patch)
    _synced(shell)
    took = time.monotonic() - patched_at
    time.sleep(2)
    watch.terminate()
    tally = _tally(traffic.communicate(input="", timeout=120)[0])
    say(f"\n{took:.1f} s from the patch until kubectl saw WeightsSynced")
    say(f"requests during the change: {json.dumps(tally)}")
    _title("The same prompt again")
    _judge(before, _ask(shell), tally)


def _judge(before: Answers, after: Answers, tally: dict[str, Any]) -> None:
    one, other = (list(answers.tokens.values()) for answers in (before, after))
    _demand(all(tokens == other[0] for tokens in other), "workers answer alike")
    _demand(one[0] != other[0], "the answer is another one")
    _demand(before.pods == after.pods, "no pod was replaced and no container restarted")
    _demand(tally["sent"] > 0 and tally["lost"] == 0, f"{tally['sent']} requests, none lost")


def _demand(is_true: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not is_true:
        raise StepFailed(f"the demo failed: expected that {what}")
    say(f"  ok: {what}")


def _ask(shell: Shell) -> Answers:
    listed = json.loads(
        Shell(shell.kubeconfig, NAMESPACE, is_quiet=True).kubectl(
            "get", "pods", "-l", f"rlfleet.dev/fleet={FLEET}", "-o", "json"
        )
    )
    pods = {
        item["metadata"]["name"]: (
            item["metadata"]["uid"],
            sum(c["restartCount"] for c in _containers(item["status"])),
        )
        for item in listed["items"]
    }
    words = ("exec", "client", "--", "python3", "/demo/ask.py", FLEET, *sorted(pods))
    lines = shell.show(*words).splitlines()
    tokens = {answer["worker"]: answer["tokens"] for answer in map(json.loads, lines)}
    return Answers(tokens, pods)


def _containers(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _synced(shell: Shell) -> None:
    shell.kubectl("wait", "--for=condition=WeightsSynced", f"rlf/{FLEET}", "--timeout=600s")


def _at_rest(shell: Shell) -> None:
    """Wait until nothing moves: pods of an old template may serve the version, and are replaced."""
    quiet = Shell(shell.kubeconfig, NAMESPACE, is_quiet=True)
    deadline = time.monotonic() + _REST_S
    while True:
        status = json.loads(quiet.kubectl("get", "rlf", FLEET, "-o", "json"))["status"]
        moving = [c for c in status["conditions"] if c["type"] == "Reconciling"]
        if not moving:
            return
        if time.monotonic() > deadline:
            raise StepFailed(f"{FLEET} is not at rest after {_REST_S} s: {moving[0]['message']}")
        time.sleep(1)


def _tally(text: str) -> dict[str, Any]:
    tally: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return tally


def _echo(stream: IO[str] | None) -> None:
    """Print what a background command prints, as it comes."""

    def copy() -> None:
        for line in stream or ():
            say(f"  {line.rstrip()}")

    threading.Thread(target=copy, daemon=True).start()


def _explain(shell: Shell) -> None:
    """Print workers and phase times from the fleet's status, readably."""
    quiet = Shell(shell.kubeconfig, NAMESPACE, is_quiet=True)
    status = json.loads(quiet.kubectl("get", "rlf", FLEET, "-o", "json"))["status"]
    say("\nworker      phase        version     paused for")
    for worker in status["workers"]:
        say(
            f"{worker['name']:<11} {worker['phase']:<12} {worker.get('version', '-'):<11}"
            f" {worker.get('windowMs', '-')} ms"
        )
    say("\nphase       min     median  max   (ms, over the workers of the last rollout)")
    for name, spread in (status["rollout"].get("timings") or {}).items():
        say(f"{name:<11} {spread['minMs']:<7} {spread['medianMs']:<7} {spread['maxMs']}")


def _next(shell: Shell) -> str:
    version = json.dumps({"spec": {"weightVersion": "step-2"}})
    missing = json.dumps({"spec": {"weightVersion": "step-99"}})
    folder = binaries.path("kubectl").parent if not target.is_existing() else None
    tools = f"\n  export PATH={folder}:$PATH" if folder else ""
    return f"""Next steps:

  export KUBECONFIG={shell.kubeconfig}{tools}
  kubectl config set-context --current --namespace={NAMESPACE}
  kubectl get rlf {FLEET} -w
  kubectl patch rlf {FLEET} --type=merge -p '{version}'
  kubectl patch rlf {FLEET} --type=merge -p '{missing}'   # there is none: see what it says
  kubectl describe rlf {FLEET}
  kubectl scale rlf {FLEET} --replicas=3
  kubectl delete pod {FLEET}-0
  make demo-down"""


def _url() -> str:
    return f"http://{FLEET}:8000"


def _title(text: str) -> None:
    say(f"\n=== {text}")


if __name__ == "__main__":
    steps.main(main)
