"""`rotate-token`: replaces a fleet's token without an outage.

No token is printed, and none is in a command line, which other users of the machine can read.
"""

import contextlib
import json
import secrets
import time

import click

from rlfleet_kubectl.commands.changing import seconds
from rlfleet_kubectl.commands.shell import FLEET, Shell, command
from rlfleet_kubectl.core import token_rotation as rotation
from rlfleet_kubectl.core.token_rotation import RotationStep
from rlfleet_kubectl.errors import Exit, PluginError
from rlfleet_view.fleet import RawObject

_LEAST_S = 10.0
"""Each replica of the operator reads the Secret again after 5 s at the latest."""


@command(
    "rotate-token",
    "kubectl rlf rotate-token qwen",
    "kubectl rlf rotate-token qwen --finish",
)
@FLEET
@click.option("--finish", is_flag=True, help="End the rotation: the old token is rejected.")
@click.option(
    "--timeout", type=seconds, default="5m", show_default=True, help="Of each step; such as 90s."
)
def rotate_token(shell: Shell, fleet: str, *, finish: bool, timeout: float) -> None:
    """Replace the token of a fleet without an outage.

    The first call makes a new token, waits until operator and workers accept it, and has them
    send it. Both tokens are accepted then. When every trainer has the new one, --finish has the
    old one rejected. A call that was interrupted continues.
    """
    secret = _read(shell, fleet)
    step = rotation.step_of(secret)
    if finish:
        _finish(shell, fleet, secret, timeout)
        return
    if step is RotationStep.AT_REST:
        secret = _write(shell, rotation.staged(secret, secrets.token_urlsafe(32)))
    if step is not RotationStep.SWITCHED:
        shell.say(f"{fleet}: waiting until operator and workers accept the new token as well")
        _wait(shell, fleet, secret, timeout)
        secret = _write(shell, rotation.switched(secret))
        shell.say(f"{fleet}: waiting until operator and workers have the new token")
    _wait(shell, fleet, secret, timeout)
    shell.say(
        f"{fleet}: both tokens are accepted; the new one is data.token of Secret"
        f" {rotation.secret_name(fleet)}",
        f"when every trainer has it: kubectl rlf rotate-token {fleet} --finish",
    )


def _finish(shell: Shell, fleet: str, secret: RawObject, timeout: float) -> None:
    step = rotation.step_of(secret)
    if step is RotationStep.SWITCHED:
        # Before it, everybody must have the new token.
        _wait(shell, fleet, secret, timeout)
        secret = _write(shell, rotation.finished(secret))
    elif step is RotationStep.STAGED or not rotation.revision_of(secret):
        raise PluginError(
            f"{fleet}: no rotation to finish, it is {step};"
            f" run first: kubectl rlf rotate-token {fleet}"
        )
    shell.say(f"{fleet}: waiting until operator and workers reject the old token")
    _wait(shell, fleet, secret, timeout)
    shell.say(f"{fleet}: the old token is rejected")


def _read(shell: Shell, fleet: str) -> RawObject:
    secret = shell.kubectl.json("get", "secret", rotation.secret_name(fleet))
    rotation.demand_secret_of(secret, fleet)
    return secret


def _write(shell: Shell, secret: RawObject) -> RawObject:
    """Replace the Secret; the API server rejects this if it has changed since it was read."""
    done = shell.kubectl.text("replace", "-f", "-", "-o", "json", stdin=json.dumps(secret))
    written: RawObject = json.loads(done)
    return written


def _wait(shell: Shell, fleet: str, secret: RawObject, timeout: float) -> None:
    """Wait until operator and workers know this state of the Secret."""
    revision, begun = rotation.revision_of(secret), time.monotonic()
    seen = shell.kubectl.fleet(fleet)
    with contextlib.closing(shell.kubectl.watch(fleet)) as states:
        for state in states:
            seen, waited_s = state or seen, time.monotonic() - begun
            is_known = seen.status.get("tokenRevision") == revision
            if is_known and waited_s >= _LEAST_S:
                return
            if not is_known and waited_s >= timeout:
                break
    raise PluginError(
        f"{fleet}: not every worker knows revision {revision} of the token within {timeout:g} s;"
        f" look for one that does not answer, or of an older image: kubectl rlf workers {fleet};"
        " then run this again",
        Exit.TIMED_OUT,
    )
