"""Commands that change a fleet's spec, and `wait`."""

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from rlfleet_kubectl.commands.shell import FLEET, Shell, command, now, version_names
from rlfleet_kubectl.core import changes
from rlfleet_kubectl.core.changes import Described, SpecChange
from rlfleet_kubectl.errors import Exit, PluginError
from rlfleet_view.fleet import NO_SOURCE, ObservedFleet
from rlfleet_view.verdict import MIXED, Judged, SyncState, judged

_STATUS = {SyncState.STALLED: Exit.STALLED, SyncState.SUPERSEDED: Exit.SUPERSEDED}
_STATUS |= {SyncState.DELETING: Exit.FAILED}
_SIZES = {"s": 1.0, "m": 60.0, "h": 3600.0}
NO_STEP = -1


def seconds(written: str) -> float:
    """Return the seconds of a duration as kubectl writes it."""
    number, size = (written[:-1], written[-1:]) if written[-1:] in _SIZES else (written, "s")
    # No sign, nan or inf: a wait would end at once, or never.
    if not re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", number):
        raise click.BadParameter(f"{written!r} is no duration; write 90s, 10m or 1h")
    return float(number) * _SIZES[size]


def step(written: str) -> int:
    """Return the number of a step; NO_STEP for `none`."""
    if written == "none":
        return NO_STEP
    if not written.isdigit():
        raise click.BadParameter(f"{written!r} is no step; write a number from 0, or none")
    return int(written)


class Flags(NamedTuple):
    """The flags of every command that changes a fleet."""

    dry_run: bool
    wait: bool
    timeout: float


TIMEOUT = click.option(
    "--timeout", type=seconds, default="10m", show_default=True, help="Such as 90s, 10m, 1h."
)


def changing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of every command that changes a fleet."""
    dry = click.option(
        "--dry-run", is_flag=True, help="Have the API server check it; change nothing."
    )
    wait_ = click.option("--wait", is_flag=True, help="Wait as `kubectl rlf wait` does.")
    return dry(wait_(TIMEOUT(function)))


def describing(function: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that describe a version."""
    rewind = click.option(
        "--allow-rewind", is_flag=True, help="Set rollout.allowRewind: weights.step may go back."
    )
    digest = click.option("--digest", help="weights.digest of the version, or none.")
    run_id = click.option("--run-id", help="weights.runId of the version, or none.")
    at = click.option("--step", type=step, help="weights.step of the version, or none.")
    return at(run_id(digest(rewind(function))))


def _described(flags: dict[str, Any]) -> Described:
    """Take the flags of `describing` out of ``flags``."""
    run_id, digest = flags.pop("run_id"), flags.pop("digest")
    return Described(
        step=flags.pop("step"),
        run_id="" if run_id == "none" else run_id,
        digest="" if digest == "none" else digest,
        allows_rewind=flags.pop("allow_rewind"),
    )


@command(
    "set-version",
    "kubectl rlf set-version qwen step-120",
    "kubectl rlf set-version qwen step-120 --wait --timeout 5m",
    "kubectl rlf set-version qwen step-120 --step 120 --dry-run",
    "kubectl rlf set-version qwen --unset",
)
@FLEET
@click.argument("version", required=False, shell_complete=version_names)
@click.option("--unset", is_flag=True, help="Remove weightVersion: a trainer or the store decides.")
@describing
@changing
def set_version(
    shell: Shell, fleet: str, version: str | None, *, unset: bool, **flags: Any
) -> None:
    """Set the version that every worker must serve (spec.weightVersion)."""
    if (version is None) != unset:
        raise click.UsageError("name a VERSION or --unset, and not both")
    said, found = _described(flags), shell.kubectl.fleet(fleet)
    change = changes.set_version(found, version, said) if version else changes.unset_version(found)
    apply(shell, found, change, Flags(**flags))


@command("pause", "kubectl rlf pause qwen")
@FLEET
@changing
def pause(shell: Shell, fleet: str, **flags: Any) -> None:
    """Begin no further batch of a rollout (spec.rollout.paused). A batch under way completes."""
    found = shell.kubectl.fleet(fleet)
    apply(shell, found, changes.pause(found, is_paused=True), Flags(**flags))


@command("resume", "kubectl rlf resume qwen --wait")
@FLEET
@changing
def resume(shell: Shell, fleet: str, **flags: Any) -> None:
    """Continue a rollout that `pause` stopped."""
    found = shell.kubectl.fleet(fleet)
    apply(shell, found, changes.pause(found, is_paused=False), Flags(**flags))


@command("retry", "kubectl rlf retry qwen", "kubectl rlf retry qwen --id second-try --wait")
@FLEET
@click.option("--id", "restart_id", help="Value of restartId; default: the time.")
@changing
def retry(shell: Shell, fleet: str, restart_id: str | None, **flags: Any) -> None:
    """Start another rollout of the same version (spec.rollout.restartId)."""
    found = shell.kubectl.fleet(fleet)
    restart_id = restart_id or f"{now():%Y-%m-%dT%H:%M:%SZ}"
    apply(shell, found, changes.retry(found, restart_id), Flags(**flags))


@command("abort", "kubectl rlf abort qwen", "kubectl rlf abort qwen --wait")
@FLEET
@describing
@changing
def abort(shell: Shell, fleet: str, **flags: Any) -> None:
    """Take the rollout under way back: set the version that was served before it."""
    said, found = _described(flags), shell.kubectl.fleet(fleet)
    apply(shell, found, changes.abort(found, said), Flags(**flags))


@command("promote", "kubectl rlf promote qwen --wait")
@FLEET
@changing
def promote(shell: Shell, fleet: str, **flags: Any) -> None:
    """Let all workers load what the canaries serve (spec.rollout.canary.promotedVersion)."""
    found = shell.kubectl.fleet(fleet)
    apply(shell, found, changes.promote(found), Flags(**flags))


@command("rollback", "kubectl rlf rollback qwen --wait", "kubectl rlf rollback qwen --to 7")
@FLEET
@click.option("--to", "rollout_id", type=int, help="ID of a completed rollout of the history.")
@describing
@changing
def rollback(shell: Shell, fleet: str, rollout_id: int | None, **flags: Any) -> None:
    """Set the version that was completed before the target, or by another rollout."""
    said, found = _described(flags), shell.kubectl.fleet(fleet)
    apply(shell, found, changes.rollback(found, rollout_id, said), Flags(**flags))


def apply(shell: Shell, fleet: ObservedFleet, change: SpecChange | None, flags: Flags) -> None:
    """Patch the spec, print what was patched, and wait if the user wants that.

    A spec that says so already is waited for too: its rollout may have failed.
    """
    if change is None or changes.is_made(fleet, change):
        shell.say(f"{fleet.name} is unchanged: its spec says so already")
    else:
        _patch(shell, fleet, change, is_dry=flags.dry_run)
    if flags.wait and not flags.dry_run:
        version = change.fields.get("weightVersion") if change else None
        is_unset = version is None and change is not None and "weightVersion" in change.fields
        _wait(shell, fleet.name, version, flags.timeout, is_unset=is_unset)


def _patch(shell: Shell, fleet: ObservedFleet, change: SpecChange, *, is_dry: bool) -> None:
    try:
        after = shell.kubectl.patch(fleet.name, changes.operations(fleet, change), is_dry=is_dry)
    except PluginError as error:
        raise (_overtaken(shell, fleet) or error) from None
    dry = " (dry run)" if is_dry else ""
    shell.say(f"{fleet.name} patched{dry}, generation {after.generation}")
    shell.say(*(f"  {line}" for line in changes.lines(fleet, change)))
    shell.say(*(f"note: {note}" for note in change.notes))


def _overtaken(shell: Shell, fleet: ObservedFleet) -> PluginError | None:
    """Return the error if the spec is no longer the one that was read.

    The API server answers a failed test of a patch like any other patch that it cannot apply.
    """
    present = shell.kubectl.fleet(fleet.name)
    if present.generation == fleet.generation:
        return None
    return PluginError(
        f"{fleet.name} was not changed: another client changed its spec (generation"
        f" {fleet.generation}, now {present.generation}); look at it, then run this again"
    )


@command(
    "wait",
    "kubectl rlf wait qwen",
    "kubectl rlf wait qwen --version step-120 --timeout 5m",
)
@FLEET
@click.option("--version", shell_complete=version_names, help="Wait until this is served.")
@TIMEOUT
def wait(shell: Shell, fleet: str, version: str | None, timeout: float) -> None:
    """Wait until all workers take traffic with the target.

    Exit status: 0 synced, 1 the request failed, 2 wrong usage, 3 stalled, 4 timed out,
    5 the spec requests another version than --version.
    """
    _wait(shell, fleet, version, timeout)


def _wait(
    shell: Shell, name: str, version: str | None, timeout: float, *, is_unset: bool = False
) -> None:
    """Wait for the target; ``is_unset``: this command has just taken it away."""
    deadline = time.monotonic() + timeout
    fleet = shell.kubectl.fleet(name)
    found = judged(fleet, version)
    said = ""
    with contextlib.closing(shell.kubectl.watch(name)) as states:
        for seen in states:
            fleet = seen or fleet
            found = judged(fleet, version)
            if found.state is not SyncState.BEHIND:
                break
            if is_unset and _is_left(fleet, found):
                raise PluginError(_left(name, found), Exit.STALLED)
            if time.monotonic() >= deadline:
                raise PluginError(_timed_out(name, timeout, found), Exit.TIMED_OUT)
            if found.message != said:
                said = found.message
                click.echo(f"{found.reason}: {said}", err=True)
    _end(shell, fleet, found)


def _is_left(fleet: ObservedFleet, found: Judged) -> bool:
    """Return whether workers differ, and nothing names the version that they must serve."""
    return found.reason == MIXED and fleet.source == NO_SOURCE


def _left(name: str, found: Judged) -> str:
    return (
        f"{name} has no target, and its workers differ: {found.message};"
        f" set one: kubectl rlf set-version {name} VERSION, or have the trainer update all"
    )


def _timed_out(name: str, timeout: float, found: Judged) -> str:
    return f"{name} not synced within {timeout:g} s: {found.reason}: {found.message}"


def _end(shell: Shell, fleet: ObservedFleet, found: Judged) -> None:
    """Report that the fleet is synced; raise PluginError if it will not be."""
    if found.state is not SyncState.SYNCED:
        action = f"; see kubectl rlf explain {found.reason}" * (found.state is SyncState.STALLED)
        message = f"{fleet.name} {found.state.lower()}: {found.reason}: {found.message}{action}"
        raise PluginError(message, _STATUS[found.state])
    shell.say(f"{fleet.name} serves {fleet.serving or fleet.target}: {found.message}")
