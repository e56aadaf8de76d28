"""Process 1 of the node's namespaces: starts the components and reports how they end.

Killing it ends the whole cluster, because the kernel ends every process of a pid
namespace with its first. It restarts nothing: the report (layout.report_file) has the
exit status of a component that ended.

It waits for one line of JSON on its input, the plan. The host side sends it when
the network link is in place. If the input ends without a line, because the starting
process ended, this process exits.
"""

import json
import os
import sys
import time
from pathlib import Path

from dev import environment
from dev.node import boot
from dev.node.components import Component

POLL_S = 0.03


class Supervisor:
    """The components of one run: waiting, started or ended."""

    def __init__(self, components: list[Component], logs: Path, report: Path) -> None:
        self._waiting = components
        self._running: dict[int, str] = {}
        self._report: dict[str, dict[str, int]] = {}
        self._logs = logs
        self._path = report

    def run(self) -> None:
        """Start everything in order, then only look on."""
        while self._waiting:
            self._start_next()
            self._reap(os.WNOHANG)
            time.sleep(POLL_S)
        while True:
            self._reap(0)

    def _start_next(self) -> None:
        component = self._waiting[0]
        if not all(boot.accepts(address) for address in component.after):
            return
        self._waiting.pop(0)
        try:
            pid = _spawn(component.argv, self._logs / f"{component.name}.log")
        except OSError as error:
            self._record(component.name, "ended", error.errno or 1)
            return
        self._running[pid] = component.name
        self._record(component.name, "pid", pid)

    def _reap(self, flags: int) -> None:
        """Take the status of one ended process: a component's or an orphan's."""
        try:
            pid, status = os.waitpid(-1, flags)
        except ChildProcessError:
            time.sleep(1)
            return
        if name := self._running.pop(pid, None):
            self._record(name, "ended", os.waitstatus_to_exitcode(status))

    def _record(self, name: str, what: str, value: int) -> None:
        print(f"{time.strftime('%H:%M:%S')} {name} {what} {value}", flush=True)
        self._report.setdefault(name, {})[what] = value
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self._report))
        unfinished.replace(self._path)


def _spawn(argv: list[str], log: Path) -> int:
    """Start a program; not by subprocess, which would wait for children that are ours to reap."""
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), writing, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(argv[0], argv, environment.everything(), file_actions=files, setsid=True)


def main() -> None:
    """Read the plan, prepare, start, look on."""
    line = sys.stdin.readline()
    if not line:
        return
    plan = json.loads(line)
    state, logs = Path(plan["state"]), Path(plan["logs"])
    boot.prepare(state)
    boot.sweep(plan["sweeper"], logs / "sweeper.log")
    components = [Component(**component) for component in plan["components"]]
    Supervisor(components, logs, Path(plan["report"])).run()


if __name__ == "__main__":
    main()
