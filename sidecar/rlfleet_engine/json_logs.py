"""The extension's loggers, in the JSON format of all rlfleet components.

The first import in a process sets up the logger of this package: in the API server that of the
middleware, in a worker that of the worker extension. vLLM's own loggers do not change.
"""

import logging
import os

from rlfleet_contract.json_lines import JsonLines
from rlfleet_contract.settings import WorkerIdentity

_PACKAGE = "rlfleet_engine"
_STDERR = 2
"""The file descriptor: vLLM up to 0.31 makes sys.stderr put the process' name before lines."""


def logger(name: str) -> logging.Logger:
    """Return the logger of a module; it writes JSON lines to stderr."""
    package = logging.getLogger(_PACKAGE)
    # A user's logging configuration (VLLM_LOGGING_CONFIG_PATH) takes precedence.
    if not package.handlers:
        stream = open(_STDERR, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
        handler = logging.StreamHandler(stream)
        identity = WorkerIdentity.load(os.environ).identity()  # noqa: TID251 - the one reader
        handler.setFormatter(JsonLines(**identity))
        package.addHandler(handler)
        package.setLevel(logging.INFO)
        package.propagate = False
    return logging.getLogger(name)
