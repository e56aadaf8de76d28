"""Writes why the engine ends to where Kubernetes keeps it.

vLLM's API server writes last, two tracebacks after the cause, and says only "See root cause above".
Kubernetes keeps 2048 bytes of a log, which do not reach back to the cause, but first this file.
vLLM calls ``keep`` in each of its processes: rlfleet_engine.dist-info names it as a plugin.
"""

import logging
import os
import traceback
from pathlib import Path

from rlfleet_engine.settings import EngineSettings

_LOGGERS = (
    "vllm.v1.engine.core",
    "vllm.v1.engine.core_client",
    "vllm.v1.executor.multiproc_executor",
)
_FATAL = ("failed to start", "fatal error")
"""Of what they log last in a process that ends."""
_DEATH = "unexpectedly"
"""Of what they log when another process was killed, as for its memory; no error describes that."""
_LIMIT = 2048


class FatalErrors(logging.Filter):
    """Writes the first fatal error to a file that is there, and passes every record."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def filter(self, record: logging.LogRecord) -> bool:
        """Write a fatal error, unless the process that it came from has written the cause."""
        error, message = record.exc_info[1] if record.exc_info else None, record.getMessage()
        if error is not None and any(words in message for words in _FATAL):
            self._write("".join(traceback.format_exception_only(error)))
        elif error is None and record.levelno >= logging.WARNING and _DEATH in message:
            self._write(f"{message}\n")
        return True

    def _write(self, said: str) -> None:
        try:
            # Only the kubelet creates it.
            with self._file.open("r+b") as file:
                if not file.read(1):
                    file.write(said.encode(errors="replace")[:_LIMIT])
        except OSError:
            # Kubernetes then takes the end of the log.
            return


def keep() -> None:
    """Keep the fatal errors of this process."""
    errors = FatalErrors(EngineSettings.load(os.environ).termination_log)  # noqa: TID251 - the one reader
    for name in _LOGGERS:
        # Not a handler: vLLM configures its loggers again, which removes those.
        logging.getLogger(name).addFilter(errors)
