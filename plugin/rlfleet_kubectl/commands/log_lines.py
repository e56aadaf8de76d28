"""`logs`: what operator, sidecars and engines wrote during a rollout."""

from datetime import datetime, timedelta

import click

from rlfleet_kubectl.commands import gathering
from rlfleet_kubectl.commands.changing import seconds
from rlfleet_kubectl.commands.gathering import OPERATOR_NAMESPACE
from rlfleet_kubectl.commands.shell import FLEET, OUTPUT, Shell, command, now
from rlfleet_kubectl.core import merged_logs, tables
from rlfleet_kubectl.core.merged_logs import LogLine
from rlfleet_kubectl.core.names import OPERATOR_PODS
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet, RawObject

COMPONENTS = ("operator", "sidecar", "engine")


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
@OPERATOR_NAMESPACE
@OUTPUT
def logs(
    shell: Shell,
    fleet: str,
    *,
    rollout: int | None,
    since: float | None,
    only: tuple[str, ...],
    operator_namespace: str | None,
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
        space = gathering.operator_namespace(shell.kubectl, operator_namespace)
        text = _of_operator(shell, space, begin, errors)
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
) -> list[tuple[str, str]]:
    """Return pod and container with its log; one that cannot be read becomes an error.

    Of a container that was restarted, the log before the restart too: it says why it ended.
    """
    found: dict[str, str] = {}

    def read(source: str) -> None:
        pod, container, *previous = source.split("/")
        words = (pod, "-c", container, *(f"--{one}" for one in previous))
        try:
            found[source] = shell.kubectl.log(begin, *words)
        except PluginError as error:
            # Kubelets delete the log of an earlier container, and often have none to begin with.
            if not previous:
                errors.append(f"{source}: {error}")

    sources = _sources(shell.kubectl.pods(fleet.name), wanted)
    gathering.at_once(read, sources)
    return [(source, found[source]) for source in sources if source in found]


def _sources(pods: dict[str, RawObject], wanted: tuple[str, ...]) -> list[str]:
    """Return POD/CONTAINER of each, an earlier one as POD/CONTAINER/previous before it."""
    listed: list[str] = []
    for pod in sorted(pods):
        restarts = tables.restarts_by_container(pods[pod])
        for container in (one for one in ("sidecar", "engine") if one in wanted):
            if restarts.get(container):
                listed.append(f"{pod}/{container}/previous")
            listed.append(f"{pod}/{container}")
    return listed


def _of_operator(shell: Shell, namespace: str, begin: datetime, errors: list[str]) -> str:
    words = (f"--namespace={namespace}", "-l", OPERATOR_PODS, "--tail=-1")
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
