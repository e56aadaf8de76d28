"""What all commands share: the connection flags, examples in --help, where they print."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console, RenderableType
from rich.table import Table

from rlfleet_kubectl.core.tree import Style
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view import web

UNBOUNDED = 4096
"""Columns of a table, and of all that goes to a file or a pipe: nothing is cut."""


@dataclass(frozen=True, slots=True)
class Shell:
    """What a command acts with."""

    kubectl: Kubectl
    console: Console

    def style(self) -> Style:
        """Return what trees are drawn with now."""
        is_ascii = self.console.options.ascii_only
        return Style(now(), web.known_reasons(), is_ascii=is_ascii)

    def show(self, what: RenderableType) -> None:
        """Print a table or a tree; colours are left out unless this is a terminal.

        A tree is folded at the terminal's edge. A table is not cut there, as kubectl's is not:
        names and versions must be whole.
        """
        if self.console.is_terminal and not isinstance(what, Table):
            self.console.print(what)
            return
        self.console.width = UNBOUNDED
        with self.console.capture() as held:
            self.console.print(what)
        self.say(*(line.rstrip() for line in held.get().splitlines()))

    def say(self, *lines: str) -> None:
        """Print lines as they are: names and messages hold no markup."""
        for line in lines:
            click.echo(line)


def now() -> datetime:
    """Return the time of the user's clock."""
    return datetime.now(UTC)


def _names_by(*words: str) -> Callable[..., list[CompletionItem]]:
    """Return what completes by the names that kubectl prints, one a line."""

    def names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        try:
            lines = shell_of(context).kubectl.text(*words, "-o=name").splitlines()
        except PluginError:
            return []
        found = [line.removeprefix("namespace/") for line in lines]
        return [CompletionItem(one) for one in found if one.startswith(typed)]

    return names


_FLAGS = (
    click.Option(
        ["-n", "--namespace"],
        help="Namespace; default: the context's.",
        shell_complete=_names_by("get", "namespaces"),
    ),
    click.Option(
        ["--context"],
        help="Context of the kubeconfig.",
        shell_complete=_names_by("config", "get-contexts"),
    ),
    click.Option(["--kubeconfig"], help="Path of the kubeconfig.", type=click.Path()),
    click.Option(["--as", "as_user"], help="User to impersonate."),
)
"""As kubectl names them, before or after the command."""
_NAMES = {"namespace": "--namespace", "context": "--context"}
_NAMES |= {"kubeconfig": "--kubeconfig", "as_user": "--as"}


def connection_flags() -> list[click.Parameter]:
    """Return the flags that choose cluster, user and namespace."""
    return list(_FLAGS)


def shell_of(context: click.Context) -> Shell:
    """Return what the command acts with: its own flags before those of the group."""
    chosen: dict[str, str] = {}
    at: click.Context | None = context
    while at is not None:
        mine = {name: at.params[name] for name in _NAMES if at.params.get(name)}
        chosen = mine | chosen
        at = at.parent
    flags = tuple(f"{_NAMES[name]}={value}" for name, value in chosen.items())
    return Shell(Kubectl(flags), _console())


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = UNBOUNDED
    return console


class ShellCommand(click.Command):
    """A command that talks to a cluster, with examples at the end of its help."""

    def __init__(self, *words: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*words, **more)
        self.examples = tuple(examples)
        self.params += connection_flags()

    def format_epilog(self, _: click.Context, /, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")


def command(name: str, *examples: str) -> Callable[[Callable[..., None]], ShellCommand]:
    """Make a command of a function: its docstring is the help, its first argument the Shell."""

    def made(function: Callable[..., None]) -> ShellCommand:
        @click.pass_context
        def run(context: click.Context, /, **params: Any) -> None:
            mine = {key: value for key, value in params.items() if key not in _NAMES}
            function(shell_of(context), **mine)

        run.__doc__ = function.__doc__
        # Arguments and options that decorators below this one declared.
        run.__dict__["__click_params__"] = getattr(function, "__click_params__", [])
        return click.command(name, cls=ShellCommand, examples=examples)(run)

    return made


def fleet_names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the fleets whose names begin so, for completion."""
    try:
        found = shell_of(context).kubectl.fleets()
    except PluginError:
        return []
    return [CompletionItem(one.name) for one in found if one.name.startswith(typed)]


def version_names(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Return the versions that a fleet's status names, for completion."""
    try:
        fleet = shell_of(context).kubectl.fleet(context.params["fleet"])
    except (PluginError, KeyError):
        return []
    named = [(fleet.status.get("latest") or {}).get("version"), *(r.to for r in fleet.rollouts)]
    return [CompletionItem(one) for one in dict.fromkeys(named) if one and one.startswith(typed)]


FLEET = click.argument("fleet", shell_complete=fleet_names)
"""The fleet that a command is about."""
OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["json"]), help="Print JSON instead of a table."
)
