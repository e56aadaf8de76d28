"""A real etcd and kube-apiserver for one test run, without any node.

    with apiserver.running(controllers=apiserver.GARBAGE_COLLECTION) as plane:
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, "get", "ns"])

Needs no root. Ports are free ones and files lie in a temporary folder, so any
number of them run side by side. Whatever ends the caller, SIGKILL included, also
ends the servers and removes the folder: a guard process sees its pipe close.
"""

import contextlib
import http.client
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dev import steps
from dev.kubernetes import binaries, control_plane
from dev.python import packages

START_S = 120.0
# The API answers a moment before its first namespace is there.
FIRST_PATHS = ("/readyz", "/api/v1/namespaces/default")
GARBAGE_COLLECTION = ("garbage-collector-controller", "namespace-controller")
AUTOSCALING = ("horizontal-pod-autoscaler-controller",)
SERVICE_ACCOUNTS = ("serviceaccount-controller", "root-ca-certificate-publisher-controller")
AGGREGATION = ("clusterrole-aggregation-controller",)
_LOOKS = 40


@dataclass(frozen=True)
class ControlPlane:
    """A running API server and how to talk to it as cluster-admin."""

    kubeconfig: Path
    url: str
    token: str
    ca: Path
    logs: Path


def ready_steps() -> list[steps.Step]:
    """Return what is left to install and to build before `running` can start."""
    return [*packages.steps(packages.CONTROL_PLANE), *binaries.build_steps(binaries.CONTROL_PLANE)]


@contextmanager
def running(controllers: tuple[str, ...] = ()) -> Iterator[ControlPlane]:
    """Start a control plane, with kube-controller-manager if controllers are named."""
    with _Servers() as servers:
        api, etcd, peer, manager = _free_ports(4)
        at = control_plane.Endpoints(servers.state, "127.0.0.1", api, etcd, peer)
        token = control_plane.write_credentials(at)
        servers.start("etcd", control_plane.etcd(at))
        servers.wait(lambda: _accepts(etcd))
        servers.start(
            "apiserver", control_plane.apiserver(at, bind="127.0.0.1", services="10.0.0.0/24")
        )
        servers.wait(at.ca.exists)
        if controllers:
            servers.start("controllers", control_plane.controller_manager(at, manager, controllers))
        servers.wait(lambda: is_ready(at, token) and (not controllers or _accepts(manager)))
        yield ControlPlane(at.kubeconfig("admin"), at.url, token, at.ca, servers.state)


class _Servers:
    """Processes that live no longer than this object and this interpreter."""

    def __init__(self) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="rlfleet-apiserver-"))
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

    def start(self, name: str, argv: list[str]) -> None:
        """Start a server with its output in a file."""
        with (self.state / f"{name}.log").open("wb") as log:
            # A session of its own: a Ctrl-C in the terminal is for the tests to handle.
            process = subprocess.Popen(
                argv,
                cwd=self.state,
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
                tail = (self.state / f"{name}.log").read_text(errors="replace")[-2000:]
                raise steps.StepFailed(
                    f"{name} {'ended' if ended else f'is not up after {START_S:.0f} s'}:\n{tail}"
                )
            time.sleep(0.03)


def await_definition(plane: ControlPlane) -> None:
    """Wait for the CRD; ``kubectl wait`` fails at once while it has no conditions at all."""
    words = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=20s")
    argv = ["kubectl", f"--kubeconfig={plane.kubeconfig}", *words]
    for _ in range(_LOOKS):
        if subprocess.run(argv, check=False, capture_output=True, timeout=60).returncode == 0:
            return
        time.sleep(0.5)
    raise steps.StepFailed("the CRD was not established in time")


def is_ready(at: control_plane.Endpoints, token: str) -> bool:
    """Return whether the API answers the admin and has its first namespaces."""
    if not at.ca.exists():
        return False
    try:
        trust = ssl.create_default_context(cafile=str(at.ca))
        client = http.client.HTTPSConnection(
            at.address, at.apiserver_port, timeout=2, context=trust
        )
        with contextlib.closing(client):
            return all(_answers(client, path, token) for path in FIRST_PATHS)
    except (OSError, http.client.HTTPException):
        return False


def _answers(client: http.client.HTTPSConnection, path: str, token: str) -> bool:
    client.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = client.getresponse()
    answer.read()
    return answer.status == http.HTTPStatus.OK


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
