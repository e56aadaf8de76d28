"""Commands that only read: get, status, workers, history, explain."""

import contextlib
import json

import click
from click.shell_completion import CompletionItem
from rich.live import Live
from rich.tree import Tree

from rlfleet_kubectl.commands.shell import FLEET, OUTPUT, Shell, command, fleet_names, now
from rlfleet_kubectl.core import reasons, tables
from rlfleet_kubectl.core.document import document
from rlfleet_kubectl.core.tree import tree
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet, RawObject
from rlfleet_view.web import known_reasons


@command(
    "get",
    "kubectl rlf get",
    "kubectl rlf get -A -l team=search",
    "kubectl rlf get qwen -n rl -o json",
)
@click.argument("names", nargs=-1, shell_complete=fleet_names)
@click.option("-l", "--selector", help="Fleets with these labels, as in kubectl get.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Fleets of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Instead of a table.")
def get(
    shell: Shell,
    names: tuple[str, ...],
    selector: str | None,
    output: str | None,
    *,
    all_namespaces: bool,
) -> None:
    """List fleets, or some by name. To watch a list: kubectl get rlf -w."""
    flags = _flags(names, selector, all_namespaces=all_namespaces)
    kubectl = shell.kubectl
    if output == "yaml":
        shell.say(kubectl.fleets_as_yaml(names, *flags).rstrip("\n"))
        return
    found = [kubectl.fleet(name) for name in names] if names else kubectl.fleets(*flags)
    if output:
        shell.say(json.dumps([one.raw for one in found], indent=2))
    elif found:
        shell.show(tables.fleets(found, now(), all_namespaces=all_namespaces))
    else:
        shell.say(
            "no fleets found" + "; other namespaces: kubectl rlf get -A" * (not all_namespaces)
        )


def _flags(names: tuple[str, ...], selector: str | None, *, all_namespaces: bool) -> list[str]:
    if names and all_namespaces:
        raise PluginError("names and --all-namespaces exclude each other; use -n NAMESPACE")
    if names and selector:
        raise PluginError("names and --selector exclude each other; leave one out")
    spaces = ["--all-namespaces"] if all_namespaces else []
    return [*spaces, f"--selector={selector}"] if selector else spaces


@command(
    "status",
    "kubectl rlf status qwen",
    "kubectl rlf status qwen --watch",
    "kubectl rlf status qwen -o json | jq .state",
)
@FLEET
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Draw it again at each change.")
@OUTPUT
def status(shell: Shell, fleet: str, output: str | None, *, is_watched: bool) -> None:
    """Show a fleet as a tree: conditions, rollout, workers."""
    first = shell.kubectl.fleet(fleet)
    if not is_watched:
        _show(shell, first, output)
    elif output or not shell.console.is_terminal:
        _stream(shell, fleet, output)
    else:
        _draw(shell, first)


def _show(shell: Shell, fleet: ObservedFleet, output: str | None) -> None:
    if output:
        shell.say(json.dumps(document(fleet), indent=2))
    else:
        shell.show(tree(fleet, shell.style()))


def _stream(shell: Shell, name: str, output: str | None) -> None:
    """Print each state: as JSON one per line, for a program that reads them."""
    with contextlib.closing(shell.kubectl.watch(name)) as states:
        for fleet in states:
            if fleet is not None and output:
                shell.say(json.dumps(document(fleet)))
            elif fleet is not None:
                _show(shell, fleet, None)


def _draw(shell: Shell, first: ObservedFleet) -> None:
    """Draw one tree in place; the seconds count on between two changes."""

    def drawn(fleet: ObservedFleet) -> Tree:
        return tree(fleet, shell.style())

    seen = first
    with (
        contextlib.closing(shell.kubectl.watch(first.name)) as states,
        Live(drawn(seen), console=shell.console, auto_refresh=False) as live,
    ):
        for fleet in states:
            seen = fleet or seen
            live.update(drawn(seen), refresh=True)


@command(
    "workers", "kubectl rlf workers qwen", "kubectl rlf workers qwen -o wide", "kubectl rlf workers"
)
@click.argument("fleet", required=False, shell_complete=fleet_names)
@click.option(
    "-o", "--output", type=click.Choice(["wide", "json"]), help="wide adds node and proof."
)
def workers(shell: Shell, fleet: str | None, output: str | None) -> None:
    """List the workers of a fleet, or of all fleets of the namespace."""
    kubectl = shell.kubectl
    found = [kubectl.fleet(fleet)] if fleet else kubectl.fleets()
    if output == "json":
        listed = [one for each in found for one in document(each)["workers"]]
        shell.say(json.dumps(listed, indent=2))
        return
    pods: dict[str, RawObject] = {}
    for one in found if output == "wide" else ():
        pods |= kubectl.pods(one.name)
    rows = (row for one in found for row in one.workers)
    shell.show(tables.workers(rows, pods, is_wide=output == "wide"))
    _say_left_out(shell, found)


def _say_left_out(shell: Shell, found: list[ObservedFleet]) -> None:
    for one in found:
        if one.left_out:
            shell.say(f"status of {one.name} leaves out {one.left_out} workers")


@command("history", "kubectl rlf history qwen", "kubectl rlf history qwen -o json")
@FLEET
@OUTPUT
def history(shell: Shell, fleet: str, output: str | None) -> None:
    """List the rollouts of a fleet, the newest first."""
    found = shell.kubectl.fleet(fleet)
    if output:
        newest = found.status.get("rollout")
        past = found.status.get("history") or []
        shell.say(json.dumps([*([newest] if newest else []), *past], indent=2))
    elif found.rollouts:
        shell.show(tables.history(found.rollouts, now()))
    else:
        shell.say(f"{fleet} has had no rollout")


def _reason_names(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [CompletionItem(one) for one in known_reasons() if one.startswith(typed)]


@command(
    "explain",
    "kubectl rlf explain CheckpointIncomplete",
    "kubectl rlf explain",
)
@click.argument("names", nargs=-1, metavar="[REASON]...", shell_complete=_reason_names)
def explain(shell: Shell, names: tuple[str, ...]) -> None:
    """Explain reasons of conditions and problem codes; without a name, list them."""
    known = known_reasons()
    for name in names or ():
        shell.say(*reasons.explained(known, name))
    if not names:
        shell.say(*(f"{entry.name} ({entry.of})" for each in known.values() for entry in each))
