"""`doctor`: what is wrong with an installation or a fleet, and which command mends it."""

import json
from importlib import resources

import click

from rlfleet_kubectl import __version__
from rlfleet_kubectl.commands import gathering
from rlfleet_kubectl.commands.gathering import OPERATOR_NAMESPACE
from rlfleet_kubectl.commands.shell import OUTPUT, Shell, command, fleet_names, now
from rlfleet_kubectl.core.doctor import access, finding, installation, pods, scene
from rlfleet_kubectl.core.doctor.access import Answer
from rlfleet_kubectl.core.doctor.diagnosis import Examined, Knowledge, diagnosed, fleets_of
from rlfleet_kubectl.core.doctor.finding import Finding
from rlfleet_kubectl.core.doctor.scene import Scene, SecretKeys
from rlfleet_kubectl.errors import Exit, PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.web import known_reasons

_LOGS, _LINES = 4, 400
"""So many containers' logs are read, and so many lines of each: workers crash alike."""


@command(
    "doctor",
    "kubectl rlf doctor",
    "kubectl rlf doctor qwen -n rl",
    "kubectl rlf doctor -A -o json | jq '.findings[].mend'",
)
@click.argument("fleet", required=False, shell_complete=fleet_names)
@click.option("-A", "--all-namespaces", is_flag=True, help="Fleets of all namespaces.")
@OPERATOR_NAMESPACE
@OUTPUT
def doctor(
    shell: Shell,
    fleet: str | None,
    *,
    all_namespaces: bool,
    operator_namespace: str | None,
    output: str | None,
) -> None:
    """Find what is wrong with the installation and with fleets, and what mends it.

    Exit status 0: no error found; 1: an error, or the command failed.
    """
    if fleet and all_namespaces:
        raise PluginError("a name and --all-namespaces exclude each other; use -n NAMESPACE")
    seen = gathered(shell.kubectl, operator_namespace, fleet=fleet, all_namespaces=all_namespaces)
    for space in seen.spaces:
        _read_logs(shell.kubectl, space)
    found = diagnosed(seen, knowledge())
    if output:
        shell.say(json.dumps(finding.as_document(found), indent=2))
    else:
        _print(shell, found, seen)
    if finding.errors(found):
        click.get_current_context().exit(Exit.FAILED)


def _print(shell: Shell, found: list[Finding], seen: Examined) -> None:
    for one in found:
        for line in finding.rendered(one):
            shell.console.print(line, soft_wrap=True)
    count = sum(len(fleets_of(space, seen.only)) for space in seen.spaces)
    where = f"operator in {seen.operator.namespace}, fleets looked at: {count}"
    shell.say(f"{finding.summary(found)} ({where})")


def knowledge() -> Knowledge:
    """Return what this release of the plugin knows."""
    text = resources.files("rlfleet_kubectl").joinpath("definition.json").read_text()
    return Knowledge(__version__, frozenset(json.loads(text)), known_reasons())


def gathered(
    kubectl: Kubectl, operator: str | None, *, fleet: str | None, all_namespaces: bool
) -> Examined:
    """Return all evidence; raises PluginError if the one fleet that was asked for is not there."""
    elsewhere = gathering.operators(kubectl)
    home = operator or gathering.driving_namespace(kubectl, elsewhere)
    near = gathering.scene(kubectl, home, gathering.OPERATOR_KINDS)
    if fleet:
        kubectl.fleet(fleet)
    names = _namespaces(kubectl, all_namespaces=all_namespaces)
    spaces = [gathering.scene(kubectl, name, gathering.SPACE_KINDS) for name in names]
    if why := scene.unreachable((near, *spaces)):
        raise PluginError(why)
    definition, is_known = gathering.definition(kubectl)
    return Examined(
        operator=near,
        spaces=spaces,
        secrets={one.namespace: _secrets(kubectl, one, fleet) for one in spaces},
        definition=definition,
        is_definition_known=is_known,
        of_user=_of_user(kubectl, near, names),
        of_operators=_of_operators(kubectl, near, names),
        now=now(),
        only=fleet,
        elsewhere=elsewhere,
    )


def _namespaces(kubectl: Kubectl, *, all_namespaces: bool) -> list[str]:
    if not all_namespaces:
        return [gathering.current_namespace(kubectl)]
    try:
        return sorted({one.namespace for one in kubectl.fleets("--all-namespaces")})
    except PluginError as error:
        # Without the definition there are no fleets, which is a finding.
        if gathering.NO_TYPE in str(error):
            return []
        raise


def _read_logs(kubectl: Kubectl, space: Scene) -> None:
    """Put the end of the log of crashed containers where Kubernetes has 2 KB of it.

    Where an engine's own process fails, vLLM's server writes more than that after the reason.
    """
    for pod, container in pods.crashed(space)[:_LOGS]:
        words = (pod["metadata"]["name"], f"--namespace={space.namespace}", "--previous")
        try:
            log = kubectl.text("logs", *words, "-c", container["name"], f"--tail={_LINES}")
        except PluginError:
            # Kubelets delete such logs, and a user may not be allowed to read them.
            continue
        pods.last_end(container)["message"] = log


def _secrets(kubectl: Kubectl, space: Scene, only: str | None) -> SecretKeys | None:
    names = set[str]()
    for fleet in fleets_of(space, only):
        fields = ("weights.source.credentialsSecret", "sidecar.tlsSecret")
        names |= {f"{fleet.name}-admin", *filter(None, map(fleet.spec_at, fields))}
    return gathering.secret_keys(kubectl, space.namespace, sorted(names))


def _of_user(kubectl: Kubectl, near: Scene, names: list[str]) -> list[Answer]:
    found = gathering.allowed(kubectl, access.OF_USER_NEAR_OPERATOR, near.namespace)
    for name in names:
        found += gathering.allowed(kubectl, access.OF_USER, name)
    return found


def _of_operators(kubectl: Kubectl, near: Scene, names: list[str]) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {}
    for deployment in near.of("deployments"):
        answers = found.setdefault(access.account_of(deployment), [])
        for name, rights in installation.needed_by(deployment, names):
            answers += gathering.allowed(kubectl, rights, name, access.account_of(deployment))
    return found
