"""Modules that name torch, in the tests' environment, which lacks it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest


@contextmanager
def imported(name: str, at: Path, patch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import a module with an empty one of torch's name, made in the directory ``at``."""
    (at / "torch.py").touch()
    patch.syspath_prepend(at)
    module = importlib.import_module(name)
    yield module
    for one in ("torch", name):
        del sys.modules[one]
