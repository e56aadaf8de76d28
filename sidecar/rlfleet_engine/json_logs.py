"""The extension's own loggers, in the form that all of rlfleet writes.

The first module that logs sets up the logger of this package: when vLLM imports the middleware
into its API server, or the worker extension into a worker. vLLM's own loggers stay as they are.
"""

import logging
import os

from rlfleet_contract.json_lines import JsonLines
from rlfleet_contract.settings import WorkerIdentity

_PACKAGE = "rlfleet_engine"
_STDERR = 2
"""vLLM up to 0.31 makes sys.stderr write the name of the process before each line."""


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; it writes JSON lines to stderr."""
    package = logging.getLogger(_PACKAGE)
    # A logging configuration of the user's own (VLLM_LOGGING_CONFIG_PATH) stays in force.
    if not package.handlers:
        stream = open(_STDERR, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
        handler = logging.StreamHandler(stream)
        identity = WorkerIdentity.load(os.environ).identity()  # noqa: TID251 - the one reader
        handler.setFormatter(JsonLines(**identity))
        package.addHandler(handler)
        package.setLevel(logging.INFO)
        package.propagate = False
    return logging.getLogger(name)
