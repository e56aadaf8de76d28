"""A real etcd and kube-apiserver for one test run, without any node.

    with apiserver.running(controllers=apiserver.GARBAGE_COLLECTION) as plane:
        subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, "get", "ns"])

Needs no root. Ports are free ones and files lie in a temporary folder, so any
number of them run side by side. Whatever ends the caller, SIGKILL included, also
ends the servers and removes the folder: a guard process sees its pipe close.
"""

import contextlib
import http.client
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev import steps
from dev.kubernetes import binaries, control_plane
from dev.python import packages
from dev.servers import Servers, accepts, free_ports

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
    with Servers("rlfleet-apiserver-") as servers:
        api, etcd, peer, manager = free_ports(4)
        at = control_plane.Endpoints(servers.state, "127.0.0.1", api, etcd, peer)
        token = control_plane.write_credentials(at)
        servers.start("etcd", control_plane.etcd(at))
        servers.wait(lambda: accepts(etcd))
        servers.start(
            "apiserver", control_plane.apiserver(at, bind="127.0.0.1", services="10.0.0.0/24")
        )
        servers.wait(at.ca.exists)
        if controllers:
            servers.start("controllers", control_plane.controller_manager(at, manager, controllers))
        servers.wait(lambda: is_ready(at, token) and (not controllers or accepts(manager)))
        yield ControlPlane(at.kubeconfig("admin"), at.url, token, at.ca, servers.state)


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


def main() -> None:
    """Make ready, start one, print how to use it, end it on Ctrl-C."""
    steps.run(ready_steps())
    with running(GARBAGE_COLLECTION + SERVICE_ACCOUNTS) as plane:
        steps.say(f"export KUBECONFIG={plane.kubeconfig}")
        signal.pause()


if __name__ == "__main__":
    steps.main(main)
