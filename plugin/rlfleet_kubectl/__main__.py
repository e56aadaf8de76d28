"""The entry point: runs the command and turns its error into a message and an exit status."""

import io
import signal
import sys
from pathlib import Path

from rlfleet_kubectl import interrupts

try:
    import click

    from rlfleet_kubectl.cli import rlf
    from rlfleet_kubectl.commands import completing
    from rlfleet_kubectl.errors import PluginError
except ModuleNotFoundError as error:
    # The wheel's script is there without the extra too.
    sys.exit(f"error: {error.name} is not installed; run pip install 'rlfleet[plugin]'")


def main() -> None:
    """Run it as `kubectl rlf`, as `kubectl-rlf`, or as what kubectl completes with."""
    if Path(sys.argv[0]).name == completing.KUBECTL_ASKS:
        click.echo("\n".join(completing.for_kubectl(rlf, sys.argv[1:])))
        return
    for stream in (sys.stdout, sys.stderr):
        # Messages and logs may hold what the terminal's encoding has no characters for.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    interrupts.after_imports()
    # A wait that a script ends must end its kubectl too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        rlf.main(prog_name="kubectl rlf", complete_var=completing.VARIABLE)
    except PluginError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.status)


if __name__ == "__main__":
    main()
