"""Ctrl-C in commands as a user runs them; kubectl is a script that never ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlfleet_kubectl import kubectl

KUBECTL = """#!/bin/sh
echo $$ > "$0.started"
exec sleep 60
"""
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    "words",
    [
        ["get"],
        ["set-version", "qwen", "step-2", "--wait"],
        ["wait", "qwen"],
        ["status", "qwen", "--watch"],
        ["top", "--watch"],
        ["doctor"],
        ["dashboard", "--no-browser"],
    ],
)
def test_a_command_ends_by_the_signal_and_without_words(tmp_path: Path, words: list[str]) -> None:
    """An exit status of its own would let a script's loop continue."""
    started = tmp_path / "kubectl.started"
    os.mkfifo(started)
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), *os.get_exec_path()])
    # What runs the tests may ignore it, as nohup and a shell's background do.
    argv = ["env", "--default-signal=INT", sys.executable, "-m", "rlfleet_kubectl", *words]
    with subprocess.Popen(
        argv,
        env={"PATH": path, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        asked = int(started.read_text().split()[0])
        # As a terminal does: to kubectl too, which may have begun before its parent knows it.
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)

    assert (process.returncode, said) == (-signal.SIGINT, "")
    # Its end takes a moment to be seen.
    deadline = time.monotonic() + 10
    while _runs(asked) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(asked)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_instant_in_which_kubectl_starts_ends_kubectl_too(
    number: int,
) -> None:
    """A script may send it to the command alone: then nothing else ends kubectl."""

    def strike(_frame: object, event: str, called: object) -> None:
        if event == "c_return" and getattr(called, "__name__", "") == "fork_exec":
            sys.setprofile(None)
            signal.raise_signal(number)

    before, known = _children(), signal.signal(number, signal.default_int_handler)
    try:
        sys.setprofile(strike)
        with pytest.raises(KeyboardInterrupt):
            kubectl.ran(["sleep", "60"])
    finally:
        sys.setprofile(None)
        signal.signal(number, known)

    assert [one for one in _children() - before if _runs(one)] == []


def _children() -> set[int]:
    """Return the processes that this one has started."""
    found = Path("/proc/self/task").glob("*/children")
    return {int(pid) for one in found for pid in one.read_text().split()}


def _runs(pid: int) -> bool:
    """Return whether a process runs: one that has ended may wait for its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("before", "expected"),
    [("default_int_handler", "Handlers.SIG_DFL"), ("SIG_IGN", "Handlers.SIG_IGN")],
)
def test_while_it_is_imported_it_prints_no_traceback(before: str, expected: str) -> None:
    """What a shell runs in the background still ignores Ctrl-C."""
    code = (
        f"import signal; signal.signal(signal.SIGINT, signal.{before});"
        " import rlfleet_kubectl.__main__; print(repr(signal.getsignal(signal.SIGINT)))"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=ENVIRONMENT, check=True, capture_output=True, text=True)

    assert expected in done.stdout
