"""How the plugin runs kubectl: here a script of its name."""

import contextlib
import os
from pathlib import Path

import pytest

from rlfleet_kubectl import kubectl
from rlfleet_kubectl.errors import PluginError
from rlfleet_kubectl.kubectl import Kubectl

SCRIPT = """#!/bin/sh
cat <<END
{
  "metadata": {"name": "qwen", "generation": $(ls -1 "$0".* 2>/dev/null | wc -l)}
}
END
touch "$0.$$"
exec sleep 60
"""
"""Says once how often it ran before, and nothing more, as a watch of a replaced definition."""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Make the script the kubectl that is found first."""
    program = folder / "kubectl"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), *os.get_exec_path()]))


def test_a_watch_that_is_silent_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, SCRIPT)
    monkeypatch.setattr(kubectl, "_SILENCE_S", 1.5)
    monkeypatch.setattr(kubectl, "_AGAIN_S", 0.0)

    with contextlib.closing(Kubectl().watch("qwen")) as states:
        seen: list[int] = []
        while len(seen) < 3:
            state = next(states)
            if state is not None:
                seen.append(state.generation)

    assert seen == [0, 1, 2]


ASKING = """#!/bin/sh
echo 'open https://login.example and enter ABCD' >&2
sleep 3
cat
echo 'error: you must be logged in' >&2
exit 1
"""


def test_what_a_login_asks_for_is_shown_and_a_failure_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch, ASKING)

    with pytest.raises(PluginError, match="you must be logged in"):
        Kubectl().text("get", "rlf", stdin="input")
    assert capsys.readouterr().err == "open https://login.example and enter ABCD\n"


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_input_and_output_of_any_size_pass(size: int) -> None:
    done = kubectl.ran(["sh", "-c", f"cat; head -c {size} /dev/zero >&2"], "x" * size)

    assert (done.stdout, len(done.stderr)) == ("x" * size, size)


def test_a_name_that_is_a_flag_never_reaches_kubectl() -> None:
    with pytest.raises(PluginError, match="--all-namespaces is no name of a fleet"):
        Kubectl().fleet("--all-namespaces")
    with pytest.raises(PluginError, match="--watch is no name of a fleet"):
        Kubectl().fleets_as_yaml(["--watch"])


UNREACHABLE = """#!/bin/sh
echo 'E1127 22:45:38.013206   24165 memcache.go:265] "Unhandled Error" err="refused"' >&2
echo 'The connection to the server 127.0.0.1:1 was refused' >&2
exit 1
"""


def test_of_an_unreachable_server_kubectl_s_words_are_shown_without_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, UNREACHABLE)

    with pytest.raises(PluginError) as raised:
        Kubectl().text("get", "rlf")
    assert str(raised.value) == "The connection to the server 127.0.0.1:1 was refused"
