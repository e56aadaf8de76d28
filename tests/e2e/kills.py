"""How the parts of a running fleet are made to die."""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dev.demo import stage
from dev.node import layout
from dev.shell import Shell
from rlfleet_sidecar.state.journal_log import last_record

Strike = Callable[[], None]
"""Kills what was aimed at, at once: whatever takes time to find was found before."""
_JOURNAL = ("var", "lib", "rlfleet", "worker.json")
"""Where it lies in the container of a sidecar."""
_LOAD_S = 300.0
"""How long a strike waits for its stage."""
_ENGINE_CORE = b"VLLM::EngineCore"
_RANK = b"VLLM::Worker_TP%d"
_API_SERVER = b"vllm.entrypoints.openai.api_server"
_SIDECAR = b"rlfleet_sidecar"


def kill_engine_core(shell: Shell, pod: str) -> None:
    """Kill vLLM's engine process as the kernel's out-of-memory killer does, at once."""
    aim_at_engine_core(shell, pod)()


def kill_sidecar(shell: Shell, pod: str) -> None:
    """Kill the sidecar's process from the node: a container's first process is deaf within."""
    aim_at_sidecar(shell, pod)()


def aim_at_engine_core(shell: Shell, pod: str) -> Strike:
    """Find vLLM's engine process."""
    return _aimed_at(shell, pod, _ENGINE_CORE)


def aim_at_api_server(shell: Shell, pod: str) -> Strike:
    """Find vLLM's API server, the first process of the engine's container."""
    return _aimed_at(shell, pod, _API_SERVER)


def aim_at_sidecar(shell: Shell, pod: str) -> Strike:
    """Find the sidecar's process."""
    return _aimed_at(shell, pod, _SIDECAR)


def aim_at_rank(shell: Shell, pod: str, rank: int) -> Strike:
    """Find the process of one tensor-parallel rank."""
    return _aimed_at(shell, pod, _RANK % rank)


def _aimed_at(shell: Shell, pod: str, word: bytes) -> Strike:
    process = min(_processes(shell, pod, word))
    return lambda: os.kill(process, signal.SIGKILL)


class AtStage:
    """Strikes as soon as a worker is in a stage of its change, or once the time is up.

    The sidecar writes a stage down before what it begins; from the node its journal can be read.
    """

    def __init__(
        self, shell: Shell, pod: str, stage: str, strike: Strike, limit_s: float = _LOAD_S
    ) -> None:
        sidecar = min(_processes(shell, pod, _SIDECAR))
        self._journal = Path("/proc", str(sidecar), "root", *_JOURNAL)
        self._sign = f'"stage":"{stage}"'.encode()
        self._strike = strike
        self._end = time.monotonic() + limit_s
        self.is_hit = threading.Event()
        """Set if it has struck in that stage."""
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while time.monotonic() < self._end:
            if self._is_reached():
                self._strike()
                self.is_hit.set()
                return
            time.sleep(0.001)
        self._strike()

    def _is_reached(self) -> bool:
        try:
            return self._sign in (last_record(self._journal.read_bytes()) or b"")
        except OSError:
            return False


def freeze_kube_apiserver(for_s: float) -> None:
    """Have the cluster's API server answer nothing for a time, as one that hangs."""
    process = _kube_apiserver()
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(for_s)
    finally:
        os.kill(process, signal.SIGCONT)


def freeze_sidecars(shell: Shell, pods: Sequence[str], for_s: float) -> None:
    """Have sidecars answer nothing for a time, as on a node that is too busy."""
    found = [min(_processes(shell, pod, _SIDECAR)) for pod in pods]
    try:
        for process in found:
            os.kill(process, signal.SIGSTOP)
        time.sleep(for_s)
    finally:
        for process in found:
            os.kill(process, signal.SIGCONT)


def _kube_apiserver() -> int:
    """Return the process of the development cluster's API server."""
    own = f"--advertise-address={layout.NODE_ADDRESS}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if own in words and words[0].endswith(b"kube-apiserver"):
            return int(process.name)
    raise AssertionError("the development cluster has no API server")


def _processes(shell: Shell, pod: str, word: bytes) -> list[int]:
    """Return the node's processes of a pod whose command has a word."""
    uid = shell.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_of_pod = uid in (process / "cgroup").read_text()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if is_of_pod and word in command:
            found.append(int(process.name))
    return found


def kill_operator(shell: Shell) -> None:
    """End the operator as a lost node does: at once, without a word."""
    flags = ("--all", "--grace-period=0", "--force")
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "delete", "pod", *flags)
    shell.run(*words)


def delete_leader(shell: Shell, name: str) -> None:
    """Delete the operator's pod that leads, as a drained node does."""
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "delete", "pod", name, "--wait=false")
    shell.run(*words)


def leader(shell: Shell) -> str:
    """Return the operator's pod that leads."""
    path = "jsonpath={.spec.holderIdentity}"
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "get", "lease", stage.RELEASE, "-o", path)
    return shell.run(*words).partition("_")[0]
