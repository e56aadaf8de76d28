"""`doctor`: what is wrong with an installation or a fleet, and which command mends it."""

import json
from importlib import resources

import click

from rlfleet_kubectl import __version__
from rlfleet_kubectl.commands import gathering
from rlfleet_kubectl.commands.gathering import OPERATOR_NAMESPACE
from rlfleet_kubectl.commands.shell import OUTPUT, Shell, command, fleet_names, now
from rlfleet_kubectl.core.doctor import access, finding, installation
from rlfleet_kubectl.core.doctor.access import Answer
from rlfleet_kubectl.core.doctor.diagnosis import Examined, Knowledge, diagnosed, fleets_of
from rlfleet_kubectl.core.doctor.finding import Finding
from rlfleet_kubectl.core.doctor.scene import Scene, SecretKeys
from rlfleet_kubectl.errors import Exit, PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.web import known_reasons


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
    near = gathering.scene(
        kubectl, gathering.operator_namespace(kubectl, operator), gathering.OPERATOR_KINDS
    )
    if fleet:
        kubectl.fleet(fleet)
    names = _namespaces(kubectl, all_namespaces=all_namespaces)
    spaces = [gathering.scene(kubectl, name, gathering.SPACE_KINDS) for name in names]
    definition, is_known = gathering.definition(kubectl)
    account, of_operator = _of_operator(kubectl, near, names)
    return Examined(
        operator=near,
        spaces=spaces,
        secrets={one.namespace: _secrets(kubectl, one, fleet) for one in spaces},
        definition=definition,
        is_definition_known=is_known,
        of_user=_of_user(kubectl, near, names),
        of_operator=of_operator,
        account=account,
        now=now(),
        only=fleet,
    )


def _namespaces(kubectl: Kubectl, *, all_namespaces: bool) -> list[str]:
    if not all_namespaces:
        return [gathering.current_namespace(kubectl)]
    return sorted({one.namespace for one in kubectl.fleets("--all-namespaces")})


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


def _of_operator(kubectl: Kubectl, near: Scene, names: list[str]) -> tuple[str, list[Answer]]:
    found: list[Answer] = []
    account = ""
    for deployment in near.of("deployments")[:1]:
        account = access.account_of(deployment)
        lease = installation.settings_of(deployment).get("RLFLEET_LEASE_NAME", "")
        rights = access.of_lease(lease)
        found += gathering.allowed(kubectl, rights, near.namespace, account)
        for name in names:
            found += gathering.allowed(kubectl, access.OF_OPERATOR, name, account)
    return account, found
