"""Why a container ended, as the end of its log says it.

Kubernetes keeps the end of the log of a container that exits with an error, 80 lines or 2048
bytes (terminationMessagePolicy FallbackToLogsOnError).
"""

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

STATUS_LIMIT = 120
"""Characters; a worker's message in status has 256, and needs some for how to read the log."""
_FROM_OUTSIDE = {137, 143}
"""Exit codes of SIGKILL, the out-of-memory killer's too, and SIGTERM."""
_PREFIX = re.compile(r"^(\(\w[\w -]* pid=\d+\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
"""How vLLM begins each line: process, level, time, file."""
_ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b|\berror: ")
_OTHER = re.compile(rf"^Traceback|{_ERROR.pattern}")
"""Where what an error says has ended."""
_MODULES = re.compile(r"^(\w+\.)+(?=[A-Z]\w+:)")
"""The modules before an exception's name."""
_ELSEWHERE = re.compile(r"\((?:above|below)\)|root cause above")
"""An error that only says that there is another one."""


def last_words(ended: Mapping[str, Any], limit: int = STATUS_LIMIT) -> str:
    """Return why a container ended, of a state `terminated` of its status; empty if unknown.

    A message of one line is the container runtime's. Of a log it is the last error, which says
    nothing about an end that came from outside.
    """
    lines = _log(ended)
    begins = [at for at, line in enumerate(lines) if _ERROR.search(line)]
    causes = [at for at in begins if not _ELSEWHERE.search(lines[at])]
    if not begins and len(lines) != 1:
        return ""
    first = (causes or begins or [0])[-1]
    # What pydantic finds stands in the lines below its error.
    below = takewhile(lambda line: not _OTHER.search(line), lines[first + 1 :])
    said = _MODULES.sub("", " ".join([lines[first], *below]))
    return said if len(said) <= limit else f"{said[: limit - 1]}…"


def _log(ended: Mapping[str, Any]) -> list[str]:
    """Return the lines of the message without what vLLM puts before them."""
    if ended.get("exitCode") in _FROM_OUTSIDE:
        return []
    written = (_PREFIX.sub("", line.strip()) for line in (ended.get("message") or "").splitlines())
    return [line.strip() for line in written if line.strip()]
