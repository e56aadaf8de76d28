"""`top`: what the engines compute now, and how old their weights are.

The metrics come through the API server's proxy to the pod. A port-forward would need the right to
reach every route of the pod, from its own loopback, where the extension trusts all callers.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rlfleet_kubectl.commands import gathering
from rlfleet_kubectl.commands.changing import seconds
from rlfleet_kubectl.commands.gathering import OPERATOR_NAMESPACE
from rlfleet_kubectl.commands.shell import OUTPUT, Shell, command, fleet_names
from rlfleet_kubectl.core import load
from rlfleet_kubectl.core.load import EngineReading, FleetLoad
from rlfleet_kubectl.core.names import OPERATOR_PODS
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view import samples
from rlfleet_view.fleet import ObservedFleet

_ENGINE_PORT = 8000
_SILENT = frozenset({"Pending", "Starting", "Terminating"})
"""Phases in which no engine answers yet, or no longer."""
_METRICS = "metrics"
"""Name of the operator's port."""
_SHOWN = 3
"""So many engines that do not answer are named."""


@command(
    "top",
    "kubectl rlf top",
    "kubectl rlf top qwen --watch",
    "kubectl rlf top qwen --interval 10s -o json | jq '.[0].row.generated'",
)
@click.argument("fleet", required=False, shell_complete=fleet_names)
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Measure again and again.")
@click.option(
    "--interval",
    type=seconds,
    default="2s",
    show_default=True,
    help="Time over which tokens are counted.",
)
@OPERATOR_NAMESPACE
@OUTPUT
def top(
    shell: Shell,
    fleet: str | None,
    *,
    is_watched: bool,
    interval: float,
    operator_namespace: str | None,
    output: str | None,
) -> None:
    """Show tokens a second, requests, window and staleness of each worker.

    Needs `get` on `pods/proxy`. BEHIND counts steps to the target; WINDOW is the last change's.
    """
    operators = gathering.operator_namespace(shell.kubectl, operator_namespace)
    meter = Meter(shell.kubectl, fleet, operators)
    meter.read()
    if not is_watched:
        time.sleep(interval)
        _print(shell, meter, output)
    elif output or not shell.console.is_terminal:
        _stream(shell, meter, interval, output)
    else:
        _draw(shell, meter, interval)


class Meter:
    """Reads the metrics of engines and operators; two readings make a rate."""

    def __init__(self, kubectl: Kubectl, fleet: str | None, operators: str) -> None:
        """Read this fleet, or all of the namespace."""
        self._kubectl, self._fleet, self._operators = kubectl, fleet, operators
        self._now: dict[str, EngineReading] = {}
        self._before: dict[str, EngineReading] = {}
        self.silent: dict[str, str] = {}
        """Pods that did not answer, with kubectl's words."""

    def read(self) -> list[FleetLoad]:
        """Read all of them; return what each fleet does."""
        fleets = self._fleets()
        self._before, self._now, self.silent = self._now, {}, {}
        engines = [
            f"{o.namespace}/{w.name}/{_ENGINE_PORT}"
            for o in fleets
            for w in o.workers
            if w.phase not in _SILENT
        ]
        ours = self._operator_pods()
        gathering.at_once(self._read, [*engines, *ours])
        pairs = {name: (self._before.get(name, now), now) for name, now in self._now.items()}
        own = [self._now[one] for one in map(_pod_of, ours) if one in self._now]
        seen = [sample for one in own for sample in one.samples] if own else None
        return [load.of_fleet(one, pairs, seen, time.time()) for one in fleets]

    def _fleets(self) -> Sequence[ObservedFleet]:
        return [self._kubectl.fleet(self._fleet)] if self._fleet else self._kubectl.fleets()

    def _operator_pods(self) -> list[str]:
        words = ("pods", f"--namespace={self._operators}", "-l", OPERATOR_PODS)
        try:
            pods = self._kubectl.json("get", *words)["items"]
        except PluginError as error:
            self.silent["the operator"] = str(error).splitlines()[0]
            return []
        return [
            f"{self._operators}/{pod['metadata']['name']}/{port['containerPort']}"
            for pod in pods
            for container in pod["spec"]["containers"]
            for port in container.get("ports") or ()
            if port.get("name") == _METRICS
        ]

    def _read(self, target: str) -> None:
        space, pod, port = target.split("/")
        path = f"/api/v1/namespaces/{space}/pods/{pod}:{port}/proxy/metrics"
        try:
            text = self._kubectl.text("get", "--raw", path)
        except PluginError as error:
            self.silent[pod] = str(error).splitlines()[0]
            return
        self._now[pod] = EngineReading(time.monotonic(), tuple(samples.parsed(text)))


def _pod_of(target: str) -> str:
    return target.split("/")[1]


def _notes(meter: Meter) -> list[str]:
    """Return why some numbers are missing."""
    if not meter.silent:
        return []
    names = sorted(meter.silent)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    said = f"no metrics of {', '.join(names[:_SHOWN])}{more}: {meter.silent[names[0]]}"
    if any("orbidden" in one for one in meter.silent.values()):
        return [said, "top needs `get` on `pods/proxy`: see docs/how-to/kubectl.md"]
    return [said, "see kubectl rlf doctor"]


def _print(shell: Shell, meter: Meter, output: str | None) -> None:
    found = meter.read()
    if output:
        shell.say(json.dumps([asdict(one) for one in found]))
    elif found:
        shell.show(load.drawn(found))
        shell.say(*filter(None, map(load.note, found)))
    else:
        shell.say("no fleets found; other namespaces: kubectl rlf get -A")
    for note in _notes(meter):
        click.echo(note, err=True)


def _stream(shell: Shell, meter: Meter, interval: float, output: str | None) -> None:
    """Print each reading: as JSON one array per line."""
    while True:
        time.sleep(interval)
        _print(shell, meter, output)


def _draw(shell: Shell, meter: Meter, interval: float) -> None:
    """Draw one table in place."""
    wait = threading.Event()
    with Live(Text("reading metrics"), console=shell.console, auto_refresh=False) as live:
        while not wait.wait(interval):
            found = meter.read()
            lines = [*filter(None, map(load.note, found)), *_notes(meter)]
            live.update(Group(load.drawn(found), *map(Text, lines)), refresh=True)
