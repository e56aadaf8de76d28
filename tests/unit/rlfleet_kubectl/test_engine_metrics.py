"""What reads engines' metrics for the page; kubectl is a script."""

import os
import threading
import time
from pathlib import Path

import pytest

from rlfleet_kubectl.dashboard.engine_metrics import EngineMetrics
from rlfleet_kubectl.kubectl import Kubectl
from tests.unit.rlfleet_view.recordings import fleet

NOTED = """#!/bin/sh
echo $$ >> "{noted}"
exec sleep 60
"""


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let kubectl note that it runs, and open no socket."""
    file, program = tmp_path / "noted", tmp_path / "kubectl"
    program.write_text(NOTED.format(noted=file))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), *os.get_exec_path()]))
    return file


def test_a_look_after_the_end_starts_no_proxy(noted: Path) -> None:
    """Threads of the server that show a page outlive its end for a moment."""
    metrics = EngineMetrics(Kubectl())
    metrics.close()

    found = metrics.look(fleet("synced"))

    assert not noted.exists()
    assert "kubectl proxy did not start" in found["note"]


def test_the_end_ends_a_proxy_that_a_look_has_just_started(noted: Path) -> None:
    metrics = EngineMetrics(Kubectl())
    looking = threading.Thread(target=metrics.look, args=(fleet("synced"),))
    looking.start()
    deadline = time.monotonic() + 30
    while not noted.exists() and time.monotonic() < deadline:
        time.sleep(0.01)

    metrics.close()
    looking.join(timeout=30)

    assert not looking.is_alive()
    assert not Path("/proc", noted.read_text().strip()).exists()
