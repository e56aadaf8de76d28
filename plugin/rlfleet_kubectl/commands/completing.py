"""Completion: for `kubectl rlf` through kubectl's own, and for `kubectl-rlf` by click's scripts."""

from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete, get_completion_class

from rlfleet_kubectl.commands.shell import ShellCommand
from rlfleet_kubectl.errors import PluginError

VARIABLE = "_KUBECTL_RLF_COMPLETE"
"""Names what the shell asks for, while it completes."""
KUBECTL_ASKS = "kubectl_complete-rlf"
"""The program that kubectl runs to complete `kubectl rlf`: a link to this file will do."""
_NO_FILES, _FILES = ":4", ":0"
"""In kubectl's protocol: these words are all, offer no files; or offer files."""


@click.command(
    "completion",
    cls=ShellCommand,
    examples=(
        "source <(kubectl rlf completion bash)",
        "kubectl rlf completion fish > ~/.config/fish/completions/kubectl-rlf.fish",
        'ln -s "$(command -v kubectl-rlf)" ~/.local/bin/kubectl_complete-rlf',
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, shell: str, **_: object) -> None:
    """Print a script that completes `kubectl-rlf` in a shell.

    `kubectl rlf` is completed by kubectl's own completion (kubectl completion --help), which
    runs kubectl_complete-rlf: make it a link to kubectl-rlf, as the last example does.
    """
    made = get_completion_class(shell)
    if made is None:
        raise PluginError(f"no completion for {shell}; use bash, zsh or fish")
    click.echo(made(context.find_root().command, {}, "kubectl-rlf", VARIABLE).source())


def for_kubectl(group: click.Command, words: Sequence[str]) -> list[str]:
    """Return what kubectl reads: words with descriptions, then what else to offer."""
    *before, typed = words or [""]
    found = ShellComplete(group, {}, "kubectl-rlf", VARIABLE).get_completions(before, typed)
    if any(one.type != "plain" for one in found):
        # The only one, which has what was typed.
        return [_FILES]
    return [
        *(f"{one.value}\t{one.help}" if one.help else str(one.value) for one in found),
        _NO_FILES,
    ]
