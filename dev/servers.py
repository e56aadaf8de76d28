"""Servers that end with the test run that started them.

    with Servers("etcd-") as servers:
        servers.start("etcd", ["etcd", "--data-dir", str(servers.state)])
        servers.wait(lambda: accepts(2379))

Each writes its output to a file of the folder `state`. Whatever ends the caller, SIGKILL
included, also ends the servers and removes the folder: a guard process sees its pipe close.
"""

import contextlib
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from dev import environment, steps

START_S = 120.0

_PORTS = range(20000, 30000)
"""Below those that Linux gives to connections and to servers that ask for any port (from
32768), and below Kubernetes' node ports (from 30000)."""


class Servers:
    """Processes that live no longer than this object and this interpreter."""

    def __init__(self, prefix: str) -> None:
        self.state = Path(tempfile.mkdtemp(prefix=prefix))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Reads pids until its input ends, however it ends, then cleans up.
        script = 'while read -r pid; do pids="$pids $pid"; done; kill -9 $pids; rm -rf "$0"'
        reading, self._pids = os.pipe()
        self._guard = subprocess.Popen(
            ["sh", "-c", script, str(self.state)],
            stdin=reading,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reading)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pids)
        self._guard.wait()
        for process in self._processes.values():
            process.wait()

    def start(self, name: str, argv: Sequence[str], **variables: str) -> None:
        """Start a server with its output in a file."""
        with (self.state / f"{name}.log").open("wb") as log:
            # A session of its own: a Ctrl-C in the terminal is for the tests to handle.
            process = subprocess.Popen(
                argv,
                cwd=self.state,
                env={**environment.everything(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[name] = process
        os.write(self._pids, f"{process.pid}\n".encode())

    def wait(self, is_up: Callable[[], bool]) -> None:
        """Return when it is up; if a server ended instead, show the end of its log."""
        deadline = time.monotonic() + START_S
        while not is_up():
            ended = [
                name for name, process in self._processes.items() if process.poll() is not None
            ]
            if ended or time.monotonic() > deadline:
                name = [*ended, *reversed(self._processes)][0]
                raise steps.StepFailed(
                    f"{name} {'ended' if ended else f'is not up after {START_S:.0f} s'}:\n"
                    f"{self.log(name)[-2000:]}"
                )
            time.sleep(0.03)

    def log(self, name: str) -> str:
        """Return what a server has written."""
        return (self.state / f"{name}.log").read_text(errors="replace")


def accepts(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return ports that are free, all different, and that the system gives to no other process."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
        if len(found) == count:
            return found
    raise steps.StepFailed(f"fewer than {count} ports of 127.0.0.1 are free")
