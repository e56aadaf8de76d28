"""How the parts of a running fleet are made to die."""

import os
import signal
from pathlib import Path

from dev import stage
from dev.shell import Shell


def kill_engine_core(shell: Shell, pod: str) -> None:
    """Kill vLLM's engine process as the kernel's out-of-memory killer does."""
    code = (
        "import os, signal, pathlib\n"
        "for p in pathlib.Path('/proc').glob('[0-9]*/cmdline'):\n"
        "    pid = int(p.parent.name)\n"
        "    if p.read_bytes().startswith(b'VLLM::EngineCore'):\n"
        "        os.kill(pid, signal.SIGKILL)\n"
        "        print('killed', pid)\n"
    )
    said = shell.kubectl("exec", pod, "-c", "engine", "--", "python3", "-c", code)
    assert "killed" in said


def kill_sidecar(shell: Shell, pod: str) -> None:
    """Kill the sidecar's process from the node: a container's first process is deaf within."""
    uid = shell.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_of_pod = uid in (process / "cgroup").read_text()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if is_of_pod and b"rlfleet_sidecar" in command:
            os.kill(int(process.name), signal.SIGKILL)
            killed += 1
    assert killed == 1, (pod, uid, killed)


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
