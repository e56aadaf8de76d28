"""Commands as a user runs them; kubectl is a script that prints a recorded fleet."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from rlfleet_kubectl.cli import rlf
from rlfleet_kubectl.commands.changing import Flags, apply
from rlfleet_kubectl.commands.shell import Shell, now
from rlfleet_kubectl.core import changes, tables
from rlfleet_kubectl.errors import Exit, PluginError
from rlfleet_kubectl.kubectl import Kubectl
from rlfleet_view.fleet import ObservedFleet
from tests.unit.rlfleet_view.recordings import fleet, with_deletion, with_status

Printing = Callable[[ObservedFleet], None]
DIFFERING: dict[str, Any] = {
    "target": "",
    "conditions": [
        {
            "type": "WeightsSynced",
            "status": "False",
            "reason": "MixedVersions",
            "message": "2 of 2 workers proved a version: step-1 and step-2;"
            " no version is requested",
            "observedGeneration": 99,
        }
    ],
    "observedGeneration": 99,
}
"""As the operator writes it, of workers that differ while nothing names a version."""


@pytest.fixture
def printing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Printing:
    """Let kubectl print a fleet, and watch without news."""
    program, printed = tmp_path / "kubectl", tmp_path / "fleet.json"
    program.write_text(
        f'#!/bin/sh\ncat "{printed}"\ncase "$*" in *--watch*) exec sleep 60;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), *os.get_exec_path()]))

    def put(found: ObservedFleet) -> None:
        printed.write_text(json.dumps(found.raw, indent=4))

    return put


@pytest.mark.parametrize(
    ("recorded", "expected"), [("stalled", Exit.STALLED), ("waiting", Exit.TIMED_OUT)]
)
def test_a_wait_for_a_spec_that_says_so_already_is_no_success(
    printing: Printing, recorded: str, expected: Exit
) -> None:
    printing(fleet(recorded))

    done = CliRunner().invoke(rlf, ["resume", "qwen", "--wait", "--timeout", "1s"])
    assert isinstance(done.exception, PluginError)
    assert done.exception.status is expected


@pytest.mark.parametrize(
    ("laid_over", "expected"),
    [({}, Exit.STALLED), ({"weights": {"follow": "Latest"}}, Exit.TIMED_OUT)],
)
def test_a_wait_after_unset_ends_if_nothing_will_name_a_version(
    printing: Printing, laid_over: dict[str, Any], expected: Exit
) -> None:
    before = fleet("synced", weightVersion="step-2", **laid_over)
    left = with_status(fleet("synced", weightVersion=None, **laid_over), **DIFFERING)
    printing(left)

    with pytest.raises(PluginError) as ended:
        apply(
            Shell(Kubectl(), Console()),
            before,
            changes.unset_version(before),
            Flags(dry_run=False, wait=True, timeout=1.0),
        )

    assert ended.value.status is expected
    ends = "set one: kubectl rlf set-version qwen VERSION, or have the trainer update all"
    assert (ends in str(ended.value)) is (expected is Exit.STALLED)


def test_a_wait_for_a_fleet_that_is_being_deleted_ends(printing: Printing) -> None:
    printing(with_deletion(fleet("waiting")))

    done = CliRunner().invoke(rlf, ["wait", "qwen"])
    assert isinstance(done.exception, PluginError)
    assert done.exception.status is Exit.FAILED
    assert "qwen deleting: Deleted: deleted at" in str(done.exception)


def test_a_narrow_terminal_cuts_no_name_and_no_version(capsys: pytest.CaptureFixture[str]) -> None:
    found = fleet("stalled")
    shell = Shell(Kubectl(), Console(force_terminal=True, width=40))

    shell.show(tables.fleets([found], now(), all_namespaces=True))
    shell.show(tables.workers(found.workers, {}, is_wide=True))
    shown = capsys.readouterr().out
    assert "…" not in shown.replace(found.status["summary"], "")
    for word in ("NAMESPACE", "qwen-0", found.target, found.workers[0].message):
        assert word in shown


def test_a_wait_that_is_terminated_leaves_no_kubectl(printing: Printing, tmp_path: Path) -> None:
    printing(fleet("waiting"))
    started = tmp_path / "started"
    program = tmp_path / "kubectl"
    program.write_text(program.read_text().replace("cat", f'echo $$ > "{started}"; cat', 1))
    process = subprocess.Popen(
        [sys.executable, "-m", "rlfleet_kubectl", "wait", "qwen"],
        env={
            "PATH": os.pathsep.join(os.get_exec_path()),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stderr=subprocess.PIPE,
    )
    with process:
        # It says what it waits for once the watch has begun.
        assert process.stderr is not None
        process.stderr.readline()
        process.terminate()

    assert process.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.parametrize("words", [["status", "qwen"], ["get", "qwen"]])
def test_a_locale_without_the_characters_of_a_message_fails_no_command(
    printing: Printing, words: list[str]
) -> None:
    found = fleet("waiting")
    found.raw["status"]["summary"] = "waits for 模型"
    printing(found)
    done = subprocess.run(
        [sys.executable, "-m", "rlfleet_kubectl", *words],
        env={
            "PATH": os.pathsep.join(os.get_exec_path()),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONIOENCODING": "latin-1:strict",
        },
        check=True,
        capture_output=True,
    )

    assert b"waits for ??" in done.stdout
