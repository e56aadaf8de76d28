"""`dashboard`: the page in a browser, until the command is stopped."""

import contextlib
import sys
import threading
import webbrowser

import click

from rlfleet_kubectl.commands import gathering
from rlfleet_kubectl.commands.shell import Shell, command
from rlfleet_kubectl.dashboard.board import Board
from rlfleet_kubectl.dashboard.server import ADDRESS, Dashboard
from rlfleet_kubectl.dashboard.watch import BoardWatch
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl

_NO_CONTEXT = "current-context must exist"
"""kubectl's words without a kubeconfig, as in a pod."""


@command(
    "dashboard",
    "kubectl rlf dashboard",
    "kubectl rlf dashboard -A --no-browser --port 8765",
    "kubectl rlf dashboard -n rl",
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Fleets of all namespaces.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
def dashboard(shell: Shell, *, all_namespaces: bool, port: int, no_browser: bool) -> None:
    """Show fleets, and buttons to change them, on a page of this machine.

    It listens on 127.0.0.1, and does what kubectl may do as you. Stop it by Ctrl-C.
    """
    board = Board()
    context, chosen = _context(shell.kubectl)
    namespace = None if all_namespaces else chosen
    try:
        where = f"{context} · {namespace or 'all namespaces'}"
        server = Dashboard(port, shell.kubectl, board, where)
    except OSError as error:
        said = f"cannot listen on {ADDRESS}:{port} ({error.strerror}); use another --port"
        raise PluginError(said) from None
    watch = BoardWatch(shell.kubectl, namespace, board)
    with contextlib.closing(watch), server:
        watch.start()
        shell.say(server.url)
        sys.stdout.flush()
        if not no_browser:
            # Some return when their user closes them: the page must be served by then.
            at = server.url_once()
            threading.Thread(target=webbrowser.open, args=(at,), daemon=True).start()
        server.serve_forever()


def _context(kubectl: Kubectl) -> tuple[str, str]:
    """Return the context's name, and the namespace of the commands."""
    try:
        contexts = kubectl.json("config", "view", "--minify").get("contexts") or [{}]
    except PluginError as error:
        if _NO_CONTEXT not in str(error):
            raise
        contexts = [{"name": "this pod's cluster"}]
    return str(contexts[0].get("name", "")), gathering.current_namespace(kubectl)
