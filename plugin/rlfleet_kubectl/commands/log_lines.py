"""`logs`: what operator, sidecars and engines wrote during a rollout."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import click

from rlfleet_kubectl.commands.changing import seconds
from rlfleet_kubectl.commands.shell import FLEET, OUTPUT, Shell, command, now
from rlfleet_kubectl.core import merged_logs
from rlfleet_kubectl.core.merged_logs import LogLine
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet

COMPONENTS = ("operator", "sidecar", "engine")
_OPERATOR_PODS = "app.kubernetes.io/name=rlfleet-operator"


@command(
    "logs",
    "kubectl rlf logs qwen",
    "kubectl rlf logs qwen --rollout 7 --only sidecar",
    "kubectl rlf logs qwen --since 10m -o json | jq .message",
)
@FLEET
@click.option("--rollout", type=int, help="ID of a rollout of the history; default: the newest.")
@click.option("--since", type=seconds, help="Instead of one rollout: such as 90s, 10m, 1h.")
@click.option(
    "--only", multiple=True, type=click.Choice(COMPONENTS), help="Only this component; repeatable."
)
@click.option("--operator-namespace", default="rlfleet-system", show_default=True)
@OUTPUT
def logs(
    shell: Shell,
    fleet: str,
    *,
    rollout: int | None,
    since: float | None,
    only: tuple[str, ...],
    operator_namespace: str,
    output: str | None,
) -> None:
    """Show what operator, sidecars and engines wrote during a rollout, merged by time."""
    found = shell.kubectl.fleet(fleet)
    begin, end = _span(found, rollout, since)
    wanted, errors = only or COMPONENTS, list[str]()
    sources = [
        list(merged_logs.parsed(source, text))
        for source, text in _of_workers(shell, found, begin, wanted, errors)
    ]
    if "operator" in wanted:
        text = _of_operator(shell, operator_namespace, begin, errors)
        sources.append(merged_logs.of_fleet(merged_logs.parsed("operator", text), found))
    lines = list(merged_logs.merged(sources, end))
    _print(shell, lines, output)
    if errors:
        raise PluginError("\n".join(errors))


def _span(
    fleet: ObservedFleet, rollout: int | None, since: float | None
) -> tuple[datetime, datetime | None]:
    if since is not None:
        return now() - timedelta(seconds=since), None
    return merged_logs.span(merged_logs.chosen(fleet, rollout))


def _of_workers(
    shell: Shell, fleet: ObservedFleet, begin: datetime, wanted: tuple[str, ...], errors: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield pod and container with its log; one that cannot be read becomes an error."""
    for pod in sorted(shell.kubectl.pods(fleet.name)):
        for container in ("sidecar", "engine"):
            if container not in wanted:
                continue
            try:
                yield f"{pod}/{container}", shell.kubectl.log(begin, pod, "-c", container)
            except PluginError as error:
                errors.append(f"{pod}/{container}: {error}")


def _of_operator(shell: Shell, namespace: str, begin: datetime, errors: list[str]) -> str:
    words = (f"--namespace={namespace}", "-l", _OPERATOR_PODS, "--tail=-1")
    try:
        text = shell.kubectl.log(begin, *words)
    except PluginError as error:
        errors.append(f"operator: {error}")
        return ""
    if not text:
        errors.append(f"operator: no lines in namespace {namespace}; see --operator-namespace")
    return text


def _print(shell: Shell, lines: list[LogLine], output: str | None) -> None:
    if output:
        shell.say(*(merged_logs.as_json(one) for one in lines))
        return
    width = max((len(one.source) for one in lines), default=0)
    for one in lines:
        shell.console.print(merged_logs.rendered(one, width), soft_wrap=True)
    if not lines:
        shell.say("no lines; kubelets delete old logs, and --since shows other times")
