"""The Python distribution: a wheel and the sources, by hatchling, the backend of pyproject.toml.

hatchling gives every file the time SOURCE_DATE_EPOCH, so that the same tree makes the same bytes.
"""

import sys
from pathlib import Path

from dev import cache
from dev.release import version


def make(folder: Path, epoch: int) -> list[Path]:
    """Write both; return their paths."""
    argv = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    cache.call(argv, "release-distribution", env={"SOURCE_DATE_EPOCH": str(epoch)})
    wheel = f"rlfleet-{version.current()}-py3-none-any.whl"
    return [folder / wheel, folder / f"rlfleet-{version.current()}.tar.gz"]
