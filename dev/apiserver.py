"""A real etcd and kube-apiserver for one test run, without any node.

    with apiserver.running(controllers=apiserver.GARBAGE_COLLECTION) as plane:
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, "get", "ns"])

Needs no root. Ports are free ones and files lie in a temporary folder, so any
number of them run side by side. Whatever ends the caller, SIGKILL included, also
ends the servers and removes the folder: a guard process sees its pipe close.
"""

import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dev import binaries, controlplane, packages, steps

START_S = 30.0
GARBAGE_COLLECTION = ("garbage-collector-controller", "namespace-controller")
SERVICE_ACCOUNTS = ("serviceaccount-controller", "root-ca-certificate-publisher-controller")


@dataclass(frozen=True)
class ControlPlane:
    """A running API server and how to talk to it as cluster-admin."""

    kubeconfig: Path
    url: str
    token: str
    ca: Path
    pid_apiserver: int
    logs: Path


def ready_steps() -> list[steps.Step]:
    """Return what is left to install and to build before `running` can start."""
    return [*packages.steps(packages.CONTROL_PLANE), *binaries.build_steps(binaries.CONTROL_PLANE)]


@contextmanager
def running(controllers: tuple[str, ...] = ()) -> Iterator[ControlPlane]:
    """Start a control plane, with kube-controller-manager if controllers are named."""
    with _Servers() as servers:
        api, etcd, peer, manager = _free_ports(4)
        at = controlplane.Endpoints(servers.state, "127.0.0.1", api, etcd, peer)
        token = controlplane.write_credentials(at)
        servers.start("etcd", controlplane.etcd(at))
        servers.wait(lambda: _accepts(etcd))
        pid = servers.start("apiserver", controlplane.apiserver(at, bind="127.0.0.1", services="10.0.0.0/24"))
        servers.wait(lambda: is_ready(at, token))
        if controllers:
            servers.start("controllers", controlplane.controller_manager(at, manager, controllers))
            servers.wait(lambda: _accepts(manager))
        yield ControlPlane(at.kubeconfig("admin"), at.url, token, at.ca, pid, servers.state)


class _Servers:
    """Processes that live no longer than this object and this interpreter."""

    def __init__(self) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="rlfleet-apiserver-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Reads pids until its input ends, however it ends, then cleans up.
        script = 'while read -r pid; do pids="$pids $pid"; done; kill -9 $pids; rm -rf "$0"'
        self._guard = subprocess.Popen(
            ["sh", "-c", script, str(self.state)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.communicate()
        for process in self._processes.values():
            process.wait()

    def start(self, name: str, argv: list[str]) -> int:
        """Start a server with its output in a file; return its pid."""
        with (self.state / f"{name}.log").open("wb") as log:
            # A session of its own: a Ctrl-C in the terminal is for the tests to handle.
            process = subprocess.Popen(
                argv, cwd=self.state, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes[name] = process
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{process.pid}\n".encode())
        self._guard.stdin.flush()
        return process.pid

    def wait(self, is_up: Callable[[], bool]) -> None:
        """Return when it is up; a server that ended meanwhile is an error with the end of its log."""
        deadline = time.monotonic() + START_S
        while not is_up():
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                name = [*ended, *reversed(self._processes)][0]
                tail = (self.state / f"{name}.log").read_text(errors="replace")[-2000:]
                message = f"{name} {'ended' if ended else f'is not up after {START_S:.0f} s'}:\n{tail}"
                raise steps.StepFailed(message)
            time.sleep(0.03)


def is_ready(at: controlplane.Endpoints, token: str) -> bool:
    """Tell whether the API answers as admin and has its first namespaces."""
    if not at.ca.exists():
        return False
    try:
        trust = ssl.create_default_context(cafile=str(at.ca))
        for path in ("/readyz", "/api/v1/namespaces/default"):
            request = urllib.request.Request(f"{at.url}{path}", headers={"Authorization": f"Bearer {token}"})
            urllib.request.urlopen(request, timeout=2, context=trust).close()
    except (OSError, ssl.SSLError):
        return False
    return True


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(held.getsockname()[1]) for held in sockets]
    for held in sockets:
        held.close()
    return ports


def main() -> None:
    """Make ready, start one, print how to use it, end it on Ctrl-C."""
    steps.run(ready_steps())
    with running(GARBAGE_COLLECTION + SERVICE_ACCOUNTS) as plane:
        steps.say(f"export KUBECONFIG={plane.kubeconfig}")
        signal.pause()


if __name__ == "__main__":
    steps.main(main)
