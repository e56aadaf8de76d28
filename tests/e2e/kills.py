"""How the parts of a running fleet are made to die."""

import os
import signal
import threading
import time
from pathlib import Path

from dev import stage
from dev.shell import Shell

_JOURNAL = ("var", "lib", "rlfleet", "worker.json")
"""Where it lies in the container of a sidecar."""
_LOAD_S = 300.0
"""How long a kill waits for a load to begin."""


def kill_engine_core(shell: Shell, pod: str) -> None:
    """Kill vLLM's engine process as the kernel's out-of-memory killer does, at once."""
    (process,) = _processes(shell, pod, b"VLLM::EngineCore")
    os.kill(process, signal.SIGKILL)


def kill_sidecar(shell: Shell, pod: str) -> None:
    """Kill the sidecar's process from the node: a container's first process is deaf within."""
    (process,) = _processes(shell, pod, b"rlfleet_sidecar")
    os.kill(process, signal.SIGKILL)


class KillInLoad:
    """Kills vLLM's engine process as soon as its worker begins to load weights.

    The sidecar writes that down before the load; from the node its journal can be read.
    """

    def __init__(self, shell: Shell, pod: str) -> None:
        (sidecar,) = _processes(shell, pod, b"rlfleet_sidecar")
        (self._core,) = _processes(shell, pod, b"VLLM::EngineCore")
        self._journal = Path("/proc", str(sidecar), "root", *_JOURNAL)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.killed = threading.Event()
        self._thread.start()

    def _watch(self) -> None:
        end = time.monotonic() + _LOAD_S
        while time.monotonic() < end:
            if b'"stage":"Loading"' in self._journal.read_bytes():
                os.kill(self._core, signal.SIGKILL)
                self.killed.set()
                return
            time.sleep(0.001)


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


def leader(shell: Shell) -> str:
    """Return the operator's pod that leads."""
    path = "jsonpath={.spec.holderIdentity}"
    words = ("kubectl", "-n", stage.OPERATOR_NAMESPACE, "get", "lease", stage.RELEASE, "-o", path)
    return shell.run(*words).partition("_")[0]
