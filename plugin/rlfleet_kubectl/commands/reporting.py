"""`report`: a support bundle without secrets."""

import platform
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import click

from rlfleet_kubectl import __version__
from rlfleet_kubectl.commands import diagnosing, gathering
from rlfleet_kubectl.commands.gathering import OPERATOR_NAMESPACE
from rlfleet_kubectl.commands.shell import Shell, command, fleet_names, now
from rlfleet_kubectl.core import bundle
from rlfleet_kubectl.core.bundle import Bundle
from rlfleet_kubectl.core.doctor import finding, installation
from rlfleet_kubectl.core.doctor.diagnosis import Examined, diagnosed, fleets_of
from rlfleet_kubectl.core.names import FLEET_LABEL, FLEETS
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.fleet import RawObject

_ENGINE_PORT = 8000
_METRICS_PORT = "8081"


@command(
    "report",
    "kubectl rlf report",
    "kubectl rlf report qwen --file qwen.tar.gz",
    "kubectl rlf report -A --tail 2000",
)
@click.argument("fleet", required=False, shell_complete=fleet_names)
@click.option("-A", "--all-namespaces", is_flag=True, help="Fleets of all namespaces.")
@click.option("--file", type=click.Path(dir_okay=False), help="The .tar.gz to write.")
@click.option("--tail", default=20000, show_default=True, help="Lines of each log.")
@OPERATOR_NAMESPACE
def report(
    shell: Shell,
    fleet: str | None,
    *,
    all_namespaces: bool,
    file: str | None,
    tail: int,
    operator_namespace: str | None,
) -> None:
    """Write a support bundle: fleets, pods, events, logs, metrics, doctor's findings.

    Secrets are never fetched, and what looks like a credential is removed. manifest.json in it
    lists what it holds and what could not be read.
    """
    if fleet and all_namespaces:
        raise PluginError("a name and --all-namespaces exclude each other; use -n NAMESPACE")
    began = now()
    name = f"rlfleet-report-{began:%Y%m%dT%H%M%SZ}"
    target = Path(file or f"{name}.tar.gz")
    progress = ShownSteps()
    with progress.step("reading objects"):
        seen = diagnosing.gathered(
            shell.kubectl, operator_namespace, fleet=fleet, all_namespaces=all_namespaces
        )
    made = Bundle()
    with progress.step("reading findings"):
        _add_objects(made, seen)
    with progress.step("reading versions"):
        _add_versions(made, shell.kubectl)
    _add_logs(made, shell.kubectl, seen, tail, progress)
    _add_metrics(made, shell.kubectl, seen, progress)
    head = {"made": began.isoformat(), "plugin": __version__, "fleet": fleet or "all"}
    with progress.step("removing secrets of files", made.count):
        files = made.files(head, progress.advance)
    _write(target, bundle.packed(files, name, int(began.timestamp())))
    shell.say(f"wrote {target}: {len(files)} files, {target.stat().st_size / 1024:.0f} KiB")
    if made.unread:
        shell.say(f"not read: {len(made.unread)}, listed in its {bundle.MANIFEST}")
    shell.say("secrets were removed as far as they are known; read it before you send it")


class ShownSteps:
    """Says on a terminal what is done and how far it is; a pipe gets nothing."""

    def __init__(self, shown: IO[str] | None = None) -> None:
        """Show steps there, or on stderr."""
        self._shown = shown or sys.stderr
        self._lock = threading.Lock()
        self._name, self._done, self._total = "", 0, 0

    def step(self, name: str, total: int = 0) -> "ShownSteps":
        """Show that a step begins, of so many parts."""
        self._name, self._done, self._total = name, 0, total
        return self

    def advance(self) -> None:
        """Show that one more part is done; any thread may say so."""
        with self._lock:
            self._done += 1
            self._say(f"{self._done} of {self._total}")

    def _say(self, how: str, end: str = "") -> None:
        if self._shown.isatty():
            click.echo(f"\r{self._name} ... {how}{end}", file=self._shown, nl=False)

    def __enter__(self) -> None:
        """Begin the step."""
        self._say("")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        count = f"{self._done} of {self._total} " if self._total else ""
        self._say(f"{count}{'failed' if kind else 'done'}", "\n")


def _write(target: Path, content: bytes) -> None:
    """Write the bundle for its owner alone."""
    try:
        target.unlink(missing_ok=True)
        target.touch(0o600, exist_ok=False)
        target.write_bytes(content)
    except OSError as error:
        raise PluginError(f"cannot write {target}: {error.strerror}; name another --file") from None


def _add_objects(made: Bundle, seen: Examined) -> None:
    for scene in (seen.operator, *seen.spaces):
        for kind, found in scene.lists.items():
            # With one fleet asked for, others of its namespace are left out.
            kept = [one for one in found if _is_wanted(one, kind, seen.only)]
            made.documents[f"objects/{scene.namespace}/{kind}.json"] = kept
        for kind, why in scene.unread.items():
            made.unread[f"objects/{scene.namespace}/{kind}"] = why
    if seen.definition is not None:
        made.documents["objects/definition.json"] = seen.definition
    for space, keys in seen.secrets.items():
        made.texts[f"secrets/{space}.txt"] = _keys(keys)
    findings = diagnosed(seen, diagnosing.knowledge())
    made.documents["doctor.json"] = finding.as_document(findings)
    lines = [line.plain for one in findings for line in finding.rendered(one)]
    made.texts["doctor.txt"] = "\n".join([*lines, finding.summary(findings), ""])


def _is_wanted(raw: RawObject, kind: str, only: str | None) -> bool:
    if only is None:
        return True
    if kind == FLEETS:
        return bool(raw["metadata"]["name"] == only)
    owner = (raw["metadata"].get("labels") or {}).get(FLEET_LABEL)
    return owner in {None, only}


def _keys(keys: object) -> str:
    if not isinstance(keys, dict):
        return "could not be read\n"
    rows = (
        f"{name}: {', '.join(f'{key} (base64, {length})' for key, length in found.items())}"
        for name, found in sorted(keys.items())
    )
    return "\n".join([*rows, ""]) if keys else "none\n"


def _add_versions(made: Bundle, kubectl: Kubectl) -> None:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    text = f"kubectl-rlf {__version__}\n{python} on {platform.platform()}\n"
    made.texts["versions.txt"] = text
    for name, words in (("kubectl.json", ("version",)), ("nodes.json", ("get", "nodes"))):
        try:
            made.documents[f"versions/{name}"] = kubectl.json(*words)
        except PluginError as error:
            made.unread[f"versions/{name}"] = str(error)


def _add_logs(
    made: Bundle, kubectl: Kubectl, seen: Examined, tail: int, progress: ShownSteps
) -> None:
    containers = _containers(seen)
    most = bundle.most_of_each(len(containers))

    def fetch(target: str) -> None:
        space, pod, container, is_previous = target.split("/")
        words = (pod, f"--namespace={space}", "-c", container, f"--tail={tail}", "--timestamps")
        more = ("--previous",) if is_previous else ()
        name = f"logs/{space}/{pod}/{container}{'.previous' if is_previous else ''}.log"
        # kubectl's --limit-bytes would keep the oldest lines.
        _put(made, name, lambda: bundle.newest(kubectl.text("logs", *words, *more), most))
        progress.advance()

    with progress.step("reading logs", len(containers)):
        gathering.at_once(fetch, containers)


def _containers(seen: Examined) -> list[str]:
    """Return the containers with a log as NAMESPACE/POD/CONTAINER/, and those that ended before."""
    found = [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{one['name']}/"
        for pod in _pods(seen)
        for one in _started(pod)
    ]
    ended = [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{one['name']}/previous"
        for pod in _pods(seen)
        for one in _started(pod)
        if one.get("restartCount")
    ]
    return [*found, *ended]


def _started(pod: RawObject) -> Iterator[RawObject]:
    status = pod.get("status") or {}
    every = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return (one for one in every if one.get("containerID") or one.get("restartCount"))


def _pods(seen: Examined) -> Iterator[RawObject]:
    yield from seen.operator.of("pods")
    for space in seen.spaces:
        names = {one.name for one in fleets_of(space, seen.only)}
        for pod in space.of("pods"):
            if (pod["metadata"].get("labels") or {}).get(FLEET_LABEL) in names:
                yield pod


def _add_metrics(made: Bundle, kubectl: Kubectl, seen: Examined, progress: ShownSteps) -> None:
    settings = [installation.settings_of(one) for one in seen.operator.of("deployments")]
    port = next((one["RLFLEET_METRICS_PORT"] for one in settings if one), _METRICS_PORT)
    mine = {pod["metadata"]["name"] for pod in seen.operator.of("pods")}

    def fetch(target: str) -> None:
        space, pod = target.split("/")
        at = port if pod in mine else _ENGINE_PORT
        path = f"/api/v1/namespaces/{space}/pods/{pod}:{at}/proxy/metrics"
        _put(made, f"metrics/{space}/{pod}.txt", lambda: kubectl.text("get", "--raw", path))
        progress.advance()

    running = [one for one in _pods(seen) if (one.get("status") or {}).get("phase") == "Running"]
    names = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in running]
    with progress.step("reading metrics", len(names)):
        gathering.at_once(fetch, names)


def _put(made: Bundle, name: str, read: Callable[[], str]) -> None:
    try:
        made.texts[name] = read()
    except PluginError as error:
        made.unread[name] = str(error)
