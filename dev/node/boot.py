"""Make the inside of the node's namespaces ready, before any component starts.

Everything done here is private to the namespaces and goes with them: mounts,
addresses, routes, firewall rules, the host name.
"""

import socket
import subprocess
import time
from pathlib import Path

from dev import cache
from dev.node import layout

SWEEPER_START_S = 20.0


def prepare(state: Path) -> None:
    """Give the namespaces their own name, folders and network."""
    socket.sethostname(layout.NODE_NAME)
    # Volumes that the kubelet mounts must be seen by the containers' runtime.
    _run("mount", "--make-rshared", "/")
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run")
    for place in layout.PRIVATE_FOLDERS:
        _hide(Path(place), state / "private" / Path(place).name)
    _network()


def _hide(place: Path, own: Path) -> None:
    """Mount an own folder over a place of the host's, but keep the cache where it is."""
    own.mkdir(parents=True)
    if cache.root().is_relative_to(place):
        inner = own / cache.root().relative_to(place)
        inner.mkdir(parents=True)
        _run("mount", "--bind", str(cache.root()), str(inner))
    _run("mount", "--rbind", str(own), str(place))


def _network() -> None:
    _run("ip", "link", "set", "lo", "up")
    own = f"{layout.NODE_ADDRESS}/{layout.LINK_PREFIX}"
    _run("ip", "address", "add", own, "dev", layout.NODE_LINK)
    _run("ip", "link", "set", layout.NODE_LINK, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # The kubelet executes commands in pods for any caller: admit only the API server,
    # which connects from this address to itself.
    port = str(layout.KUBELET_PORT)
    to_kubelet = ["!", "--in-interface", "lo", "--protocol", "tcp", "--dport", port]
    _run("iptables", "--append", "INPUT", *to_kubelet, "--jump", "DROP")


def sweep(containerd: list[str], log: Path) -> None:
    """Forget the containers of the last run, keep the images.

    containerd remembers containers whose processes went with the last run's
    namespaces. They are removed while its Kubernetes part is off, so that the
    kubelet never sees them.
    """
    with log.open("wb") as out:
        daemon = subprocess.Popen(containerd, stdout=out, stderr=out)
    try:
        _wait_for_containerd(daemon)
        left = _run(*layout.CTR, "containers", "ls", "--quiet").split()
        if left:
            _run(*layout.CTR, "containers", "rm", *left)
    finally:
        daemon.terminate()
        daemon.wait()
    Path(layout.CONTAINERD_SOCKET).unlink(missing_ok=True)


def _wait_for_containerd(daemon: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SWEEPER_START_S
    while not accepts(f"unix:{layout.CONTAINERD_SOCKET}"):
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("containerd did not start; read its log")
        time.sleep(0.02)


def accepts(address: str) -> bool:
    """Return whether a server listens at `tcp:HOST:PORT` or `unix:PATH`."""
    family, _, place = address.partition(":")
    try:
        if family == "tcp":
            host, _, port = place.rpartition(":")
            socket.create_connection((host, int(port)), timeout=1).close()
        else:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(place)
    except OSError:
        return False
    return True


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
