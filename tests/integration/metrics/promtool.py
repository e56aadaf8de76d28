"""A real promtool, built if it is not there."""

import subprocess

from dev import steps
from dev.prometheus import programs


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it."""
    steps.run(programs.build_steps())
    argv = [str(programs.path("promtool")), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
