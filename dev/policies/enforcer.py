"""Enforces NetworkPolicies on the development node, by kube-network-policies.

Its own nftables rules need a queue that not every kernel's nftables has, so iptables hands it the
first packet of each forwarded connection. Replies, and what the node itself sends, pass.
"""

import functools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev import cache, golang
from dev.node import layout, namespaces
from dev.steps import Step, StepFailed

MODULE = cache.REPOSITORY / "dev" / "policies"
_NAME, _FLAGS = "policies", ("-s", "-w")
_QUEUE = "100"
_STOP_S = 20


def path() -> Path:
    """Return where the program lies once it is built."""
    return cache.root() / "bin" / _key() / _NAME


def build_steps() -> list[Step]:
    """Return the step that builds it, if it is not built yet."""
    if path().exists():
        return []
    build = functools.partial(golang.build, ".", MODULE, path(), _FLAGS)
    return [Step(f"building {_NAME}", build)]


@functools.cache
def _key() -> str:
    return golang.key(MODULE, *_FLAGS)


@contextmanager
def enforcing(log: Path) -> Iterator[None]:
    """Enforce the policies of the node's pods for a while."""
    node = namespaces.current()
    if not node:
        raise StepFailed("the development cluster is down; `make cluster` first")
    to_queue = ["-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", _QUEUE]
    # With nobody at the queue's end, packets pass.
    rule = ["FORWARD", *to_queue, "--queue-bypass"]
    words = [f"--kubeconfig={layout.kubeconfig()}", f"--node={layout.NODE_NAME}"]
    with log.open("wb") as out:
        command = node.inside(str(path()), *words, f"--queue={_QUEUE}")
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        subprocess.run(node.inside("iptables", "--insert", *rule), check=True)
        try:
            yield
        finally:
            subprocess.run(node.inside("iptables", "--delete", *rule), check=True)
    finally:
        process.terminate()
        process.wait(_STOP_S)
