"""The group of all commands."""

from typing import Any

import click

from rlfleet_kubectl import __version__, interrupts
from rlfleet_kubectl.commands import (
    changing,
    completing,
    dashboard,
    diagnosing,
    log_lines,
    previewing,
    reading,
    reporting,
    rotating,
    watching_load,
)
from rlfleet_kubectl.commands.shell import connection_flags

COMMANDS = (
    reading.get,
    reading.status,
    reading.workers,
    reading.history,
    reading.explain,
    log_lines.logs,
    dashboard.dashboard,
    watching_load.top,
    diagnosing.doctor,
    reporting.report,
    previewing.plan,
    changing.set_version,
    changing.wait,
    changing.pause,
    changing.resume,
    changing.retry,
    changing.abort,
    changing.promote,
    changing.rollback,
    rotating.rotate_token,
    completing.completion,
)


class Listed(click.Group):
    """A group that lists its commands in their order, with the flags of the connection."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.params += connection_flags()

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names, the commands that only read first."""
        return list(self.commands)

    def invoke(self, context: click.Context, /) -> Any:
        """Run the command; click itself would print "Aborted!" for Ctrl-C, and end with 1."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            interrupts.end()


@click.group("rlf", cls=Listed, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=None, version=__version__, prog_name="kubectl-rlf")
def rlf(**_: Any) -> None:
    """Show fleets of rlfleet and change their weights.

    Uses kubectl, its kubeconfig and its login.
    """


for one in COMMANDS:
    rlf.add_command(one)
