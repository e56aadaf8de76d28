"""The only I/O towards the cluster: kubectl, with the user's kubeconfig, login and proxy.

A plugin of kubectl has kubectl at hand. It knows every way to log in, and the flags and
variables that users give it (KUBECONFIG, exec plugins, impersonation).
"""

import contextlib
import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TypedDict

from rlfleet_kubectl import interrupts
from rlfleet_kubectl.core.names import FLEET_LABEL, FLEETS
from rlfleet_kubectl.errors import PluginError
from rlfleet_view.fleet import ObservedFleet, RawObject


class _TextMode(TypedDict):
    encoding: str
    errors: str


_GONE = ("NotFound", "Forbidden", "Unauthorized", "doesn't have a resource type")
"""Words of answers after which asking again does not help."""
_LOGGED = re.compile(r"[EWI]\d{4} \d\d:\d\d:")
_AGAIN_S = 2.0
_SILENCE_S = 30.0
_GOES_ON_S = 1.0
"""What is said so long before a command's end is no reason of its failure."""
TEXT: _TextMode = {"encoding": "utf-8", "errors": "replace"}
"""kubectl writes UTF-8 in every locale; logs hold what engines wrote, which may be none."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl with the connection that the user chose."""

    flags: tuple[str, ...] = ()

    def words(self, *words: str) -> list[str]:
        """Return the command line."""
        return ["kubectl", *self.flags, *words]

    def text(self, *words: str, stdin: str | None = None) -> str:
        """Return what a command prints; raises PluginError with kubectl's words if it fails."""
        try:
            done = ran(self.words(*words), stdin)
        except FileNotFoundError:
            raise PluginError("kubectl is not on PATH; install it, then run this again") from None
        if done.returncode:
            raise PluginError(_plain(done.stderr) or f"kubectl {words[0]} failed")
        return done.stdout

    def json(self, *words: str) -> RawObject:
        """Return the object that a command prints."""
        found: RawObject = json.loads(self.text(*words, "-o", "json"))
        return found

    def fleet(self, name: str) -> ObservedFleet:
        """Return a fleet; raises PluginError for a name that kubectl would take for a flag."""
        return ObservedFleet(self.json("get", FLEETS, _name(name)))

    def fleets_as_yaml(self, names: Sequence[str], *flags: str) -> str:
        """Return fleets as kubectl writes them: those of these names, or all."""
        return self.text("get", FLEETS, *map(_name, names), *flags, "-o", "yaml")

    def fleets(self, *flags: str) -> list[ObservedFleet]:
        """Return the fleets of the namespace, or with --all-namespaces of all."""
        return [ObservedFleet(raw) for raw in self.json("get", FLEETS, *flags)["items"]]

    def pods(self, fleet: str) -> dict[str, RawObject]:
        """Return the pods of a fleet by name."""
        found = self.json("get", "pods", "-l", f"{FLEET_LABEL}={fleet}")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def log(self, begin: datetime, *words: str) -> str:
        """Return the log of a container since then, a time before each line."""
        return self.text("logs", "--timestamps", f"--since-time={begin:%Y-%m-%dT%H:%M:%SZ}", *words)

    def patch(
        self, name: str, operations: Sequence[RawObject], *, is_dry: bool = False
    ) -> ObservedFleet:
        """Apply a JSON patch to a fleet; return the result."""
        dry = ("--dry-run=server",) if is_dry else ()
        words = ("patch", FLEETS, name, "--type=json", f"--patch={json.dumps(list(operations))}")
        return ObservedFleet(self.json(*words, *dry))

    def watch(self, name: str) -> Generator[ObservedFleet | None, None, None]:
        """Yield the fleet at each change, and None about each second without one.

        A watch that ends is started again, as the API server ends each after a while; so is one
        that says nothing for 30 s, because it may be of a definition that was replaced. Raises
        PluginError if the fleet is gone or access to it is denied. The caller must close it:
        kubectl runs until then.
        """
        words = self.words("get", FLEETS, name, "-o", "json", "--watch")
        while True:
            with running(words) as process:
                arrived: queue.Queue[RawObject | None] = queue.Queue()
                reader = threading.Thread(target=_read, args=(process.stdout, arrived), daemon=True)
                reader.start()
                try:
                    yield from _until_end(arrived)
                finally:
                    # In this order: a pipe cannot be closed under the thread that reads it.
                    process.kill()
                    reader.join()
                said = process.stderr.read() if process.stderr else ""
            if any(word in said for word in _GONE):
                raise PluginError(_plain(said))
            yield None
            time.sleep(_AGAIN_S)


def _name(name: str) -> str:
    if name.startswith("-"):
        raise PluginError(f"{name} is no name of a fleet; put flags before --")
    return name


@contextlib.contextmanager
def running(words: Sequence[str], *, stdin: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a command that ends with the block; its output and errors are pipes.

    A Popen that a signal interrupts does not know what it has started.
    """
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as ends:
        with interrupts.held():
            begun = subprocess.Popen(words, stdin=stdin, stdout=pipe, stderr=pipe, **TEXT)
            process = ends.enter_context(begun)
            ends.callback(process.kill)
        yield process


def ran(words: Sequence[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; bytes of its output that are no UTF-8 are replaced.

    What it says before its end is shown: a login plugin may ask the user to open a page.
    """
    with running(words, stdin=None if stdin is None else subprocess.PIPE) as process:
        # Read here, and not by communicate(), which has it at the end.
        stderr, process.stderr = process.stderr, None
        said: list[str] = []
        listener = threading.Thread(target=_listen, args=(stderr, said), daemon=True)
        relay = threading.Thread(target=_relay, args=(process, said), daemon=True)
        listener.start()
        relay.start()
        printed, _ = process.communicate(stdin)
        listener.join()
        return subprocess.CompletedProcess(words, process.wait(), printed, "".join(said))


def _listen(stderr: IO[str], said: list[str]) -> None:
    with stderr:
        # Each line when it comes, also for the other thread.
        said.extend(stderr)


def _relay(process: subprocess.Popen[str], said: list[str]) -> None:
    """Show what a command has said, if it still runs a second after it."""
    shown = known = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GOES_ON_S)
            return
        sys.stderr.write("".join(said[shown:known]))
        sys.stderr.flush()
        shown, known = known, len(said)


def _until_end(arrived: "queue.Queue[RawObject | None]") -> Iterator[ObservedFleet | None]:
    heard_at = time.monotonic()
    while time.monotonic() - heard_at < _SILENCE_S:
        try:
            found = arrived.get(timeout=1.0)
        except queue.Empty:
            yield None
            continue
        if found is None:
            return
        heard_at = time.monotonic()
        yield ObservedFleet(found)


def _read(stdout: IO[str], arrived: "queue.Queue[RawObject | None]") -> None:
    """Pass on each object, then None at the end."""
    for one in objects(stdout):
        arrived.put(one)
    arrived.put(None)


def objects(lines: Iterable[str]) -> Iterator[RawObject]:
    """Yield the objects that kubectl prints one after another, each over many lines.

    Only a closing brace at the beginning of a line ends one.
    """
    held: list[str] = []
    for line in lines:
        held.append(line)
        if line.rstrip() == "}":
            yield json.loads("".join(held))
            held = []


def _plain(said: str) -> str:
    """Return kubectl's words, without the lines of its log if there are others."""
    lines = said.strip().splitlines()
    kept = [one for one in lines if not _LOGGED.match(one)] or lines
    return "\n".join(kept).removeprefix("error: ")
