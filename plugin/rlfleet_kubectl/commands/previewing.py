"""`plan`: the operator's own preview of a rollout, run in its pod. It writes nothing."""

import json
import sys
from collections.abc import Mapping

import click

from rlfleet_kubectl.commands import gathering
from rlfleet_kubectl.commands.gathering import OPERATOR_NAMESPACE
from rlfleet_kubectl.commands.shell import FLEET, Shell, command, version_names
from rlfleet_kubectl.core.names import FLEETS, OPERATOR_PODS
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl, objects
from rlfleet_view.fleet import RawObject

_API_VERSION, _KIND = "rlfleet.dev/v1alpha1", "RLInferenceFleet"
_PLAN = ("python3", "-m", "rlfleet_operator", "plan")


@command(
    "plan",
    "kubectl rlf plan qwen -f fleet.yaml",
    "kubectl rlf plan qwen --version step-9",
    "cat fleet.yaml | kubectl rlf plan qwen -f -",
)
@FLEET
@click.option(
    "-f",
    "--file",
    type=click.Path(allow_dash=True),
    help="Manifest with the fleet; - for stdin. Default: as it is now.",
)
@click.option("--version", shell_complete=version_names, help="Another spec.weightVersion.")
@OPERATOR_NAMESPACE
def plan(
    shell: Shell,
    fleet: str,
    *,
    file: str | None,
    version: str | None,
    operator_namespace: str | None,
) -> None:
    """Show which workers a change would reach, in which order, and what it costs.

    Runs `plan` in the operator's pod, which needs `create` on `pods/exec` there. Asks no worker
    and writes nothing. Fields that the file does not name keep their live values.
    """
    kubectl = shell.kubectl
    wanted = _in_file(kubectl, file, fleet) if file else _live(kubectl, fleet)
    if version:
        wanted["spec"] = {**wanted.get("spec", {}), "weightVersion": version}
    space = gathering.operator_namespace(kubectl, operator_namespace)
    pod = _operator_pod(kubectl, space)
    words = ("exec", "-i", pod, f"--namespace={space}", "-c", "operator", "--", *_PLAN, "-f", "-")
    try:
        shell.say(kubectl.text(*words, stdin=json.dumps(wanted)).rstrip())
    except PluginError as error:
        raise PluginError(_explained(str(error), space, pod)) from None


def _in_file(kubectl: Kubectl, file: str, fleet: str) -> RawObject:
    """Return the fleet of a manifest; kubectl reads YAML and fills in the namespace."""
    stdin = sys.stdin.read() if file == "-" else None
    words = ("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", file)
    text = kubectl.text(*words, stdin=stdin)
    found = [one for each in objects(text.splitlines(keepends=True)) for one in _fleets(each)]
    for one in found:
        if one["metadata"]["name"] == fleet:
            return {"metadata": one["metadata"], "spec": one.get("spec") or {}, **_type()}
    names = ", ".join(one["metadata"]["name"] for one in found) or "none"
    raise PluginError(f"{file} has no fleet {fleet} (fleets in it: {names}); name one of them")


def _fleets(found: RawObject) -> list[RawObject]:
    every = found["items"] if found.get("kind") == "List" else [found]
    return [one for one in every if one.get("kind") == _KIND]


def _live(kubectl: Kubectl, fleet: str) -> RawObject:
    raw = kubectl.json("get", FLEETS, fleet)
    about: Mapping[str, str] = raw["metadata"]
    return {
        "metadata": {"name": about["name"], "namespace": about["namespace"]},
        "spec": raw["spec"],
        **_type(),
    }


def _type() -> RawObject:
    return {"apiVersion": _API_VERSION, "kind": _KIND}


def _operator_pod(kubectl: Kubectl, space: str) -> str:
    """Return a pod of the operator that runs: the standby can plan too."""
    listed = kubectl.json("get", "pods", f"--namespace={space}", "-l", OPERATOR_PODS)["items"]
    running = [one for one in listed if (one.get("status") or {}).get("phase") == "Running"]
    if not running:
        raise PluginError(
            f"no operator runs in namespace {space} (pods found: {len(listed)}); see"
            " kubectl rlf doctor, or name its namespace by --operator-namespace"
        )
    return str(running[0]["metadata"]["name"])


def _explained(said: str, space: str, pod: str) -> str:
    if "orbidden" in said and "pods/exec" in said:
        return (
            f"{said}\nplan runs in the operator's pod: it needs create on pods/exec in {space};"
            " without it set spec.rollout.dryRun and read status.preview"
        )
    return f"plan failed in {space}/{pod}: {said}"
