"""How the plugin runs kubectl: here a script of its name."""

import contextlib
import os
from pathlib import Path

import pytest

from rlfleet_kubectl import kubectl
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


def test_a_watch_that_is_silent_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), *os.get_exec_path()]))
    monkeypatch.setattr(kubectl, "_SILENCE_S", 1.5)
    monkeypatch.setattr(kubectl, "_AGAIN_S", 0.0)

    with contextlib.closing(Kubectl().watch("qwen")) as states:
        seen: list[int] = []
        while len(seen) < 3:
            state = next(states)
            if state is not None:
                seen.append(state.generation)

    assert seen == [0, 1, 2]
