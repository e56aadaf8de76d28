"""Nodes with slow links on this machine: network namespaces at one bridge. Needs root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network

_NAME = "rlfleet-fan"
_SWITCH = f"{_NAME}-switch"
_NETWORK = IPv4Network("10.213.77.0/24")
_OUTSIDE = "rlfan-out"
_QUEUE = 64 * 1024
"""Bytes that wait in front of a link."""
_MTU = "9000"
"""Large, so that the machine handles few packets."""
_UNSENT = "4096 65536 262144"
"""Bytes that the kernel takes of a sender before they are sent (tcp_wmem). A piece counts as sent
once it has them, and the default, 4 MiB, is more than a small piece."""


def queue_s(bits_per_s: float) -> float:
    """Return how long a full link holds up a byte."""
    return _QUEUE * 8 / bits_per_s


class Nodes:
    """Namespaces with an address each; the caller's own is connected too, without a limit."""

    def __init__(self, count: int, bits_per_s: float) -> None:
        self.count = count
        self.outside = str(_NETWORK[-2])
        self._bits_per_s = bits_per_s

    def address(self, node: int) -> str:
        """Return a node's address."""
        return str(_NETWORK[node + 1])

    def inside(self, node: int) -> tuple[str, ...]:
        """Return the words before a command that runs on a node."""
        return ("ip", "netns", "exec", f"{_NAME}-{node}")

    def limit(self, node: int) -> None:
        """Give a node's link its rate, in both directions."""
        rate = ("rate", f"{self._bits_per_s:.0f}bit", "burst", "64kb", "limit", str(_QUEUE))
        for namespace, device in ((f"{_NAME}-{node}", "eth0"), (_SWITCH, f"port{node}")):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", *rate)

    def cut(self, node: int) -> None:
        """Let a node vanish: nothing answers for it."""
        _run("ip", "-n", _SWITCH, "link", "set", f"port{node}", "down")

    def mend(self, node: int) -> None:
        """Bring it back."""
        _run("ip", "-n", _SWITCH, "link", "set", f"port{node}", "up")


@contextmanager
def nodes(count: int, bits_per_s: float) -> Iterator[Nodes]:
    """Make so many nodes, and remove them at the end."""
    made, known = Nodes(count, bits_per_s), [_SWITCH, *(f"{_NAME}-{n}" for n in range(count))]
    try:
        for name in known:
            _run("ip", "netns", "add", name)
        _run("ip", "-n", _SWITCH, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", _SWITCH, "link", "set", "bridge", "up")
        for node in range(count):
            _plug(f"port{node}", f"{_NAME}-{node}", "eth0", made.address(node))
            made.limit(node)
            _run(*made.inside(node), "sysctl", "-qw", f"net.ipv4.tcp_wmem={_UNSENT}")
        _plug("outside", None, _OUTSIDE, made.outside)
        yield made
    finally:
        for name in known:
            # Its devices go with it.
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _plug(port: str, namespace: str | None, device: str, address: str) -> None:
    """Connect a namespace to the bridge, or the caller's own."""
    there, moved = ((), ()) if namespace is None else (("-n", namespace), ("netns", namespace))
    _run(
        *("ip", "-n", _SWITCH, "link", "add", port, "mtu", _MTU, "type", "veth"),
        *("peer", "name", device, "mtu", _MTU, *moved),
    )
    if namespace is None:
        _run("ip", "-n", _SWITCH, "link", "set", device, "netns", "1")
    _run("ip", "-n", _SWITCH, "link", "set", port, "master", "bridge", "up")
    _run("ip", *there, "address", "add", f"{address}/{_NETWORK.prefixlen}", "dev", device)
    _run("ip", *there, "link", "set", device, "up")


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
