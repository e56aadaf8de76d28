"""The Python environment of checks and tests: third-party packages only.

Our own code is on PYTHONPATH, so an edit needs no installation. The folder is
named by the lock file's hash; `current` links to the one in use.
"""

import importlib.util
import sys
from pathlib import Path

from dev import cache, steps
from dev.python import packages
from dev.steps import Step

LOCK = cache.REPOSITORY / "requirements" / "dev.lock"


def python() -> Path:
    """Return the interpreter that has everything checks and tests import."""
    return _folder() / "bin" / "python"


def make_steps() -> list[Step]:
    """Return what is left to make."""
    if (_folder() / "complete").exists():
        return []
    # Debian keeps venv's other half in a package of its own.
    extra = {} if importlib.util.find_spec("ensurepip") else {"/no/such/program": "python3-venv"}
    return [*packages.steps(extra), Step("making the Python environment", _make)]


def link() -> None:
    """Let `current` point at the environment, for the Makefile."""
    current = cache.folder("venv") / "current"
    if not current.is_symlink() or current.readlink() != Path(_folder().name):
        fresh = current.with_suffix(".unfinished")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(_folder().name)
        fresh.replace(current)


def _folder() -> Path:
    return cache.root() / "venv" / cache.digest(LOCK, sys.version)


def _make() -> None:
    with cache.lock("venv"):
        cache.call([sys.executable, "-m", "venv", "--clear", str(_folder())], "venv")
        install = [str(python()), "-m", "pip", "install", "--no-deps", "--require-hashes"]
        cache.call([*install, "--requirement", str(LOCK)], "venv-install")
        (_folder() / "complete").touch()


def main() -> None:
    """Make the environment if it is missing."""
    steps.run(make_steps())
    link()


if __name__ == "__main__":
    steps.main(main)
