"""What a container that ended wrote last: the line of its log that says why.

Kubernetes keeps the end of the log of a container that exits with an error, 80 lines or 2048
bytes (terminationMessagePolicy FallbackToLogsOnError).
"""

import re
from itertools import takewhile

STATUS_LIMIT = 120
"""Characters; a worker's message in status has 256, and needs some for how to read the log."""
_PREFIX = re.compile(r"^(\(\w[\w -]* pid=\d+\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
"""How vLLM begins each line: process, level, time, file."""
_ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b|\berror: ")
_OTHER = re.compile(rf"^Traceback|{_ERROR.pattern}")
"""Where what an error says has ended."""
_MODULES = re.compile(r"^(\w+\.)+(?=[A-Z]\w+:)")
"""The modules before an exception's name."""
_ELSEWHERE = re.compile(r"\((?:above|below)\)|root cause above")
"""An error that only says that there is another one."""


def last_words(log: str | None, limit: int = STATUS_LIMIT) -> str:
    """Return the last error in the end of a log, or else its last line, in so many characters."""
    written = (_PREFIX.sub("", line.strip()).strip() for line in (log or "").splitlines())
    lines = [line for line in written if line]
    begins = [at for at, line in enumerate(lines) if _ERROR.search(line)]
    causes = [at for at in begins if not _ELSEWHERE.search(lines[at])]
    first = (causes or begins or [len(lines) - 1])[-1]
    # What pydantic finds stands in the lines below its error.
    below = takewhile(lambda line: not _OTHER.search(line), lines[first + 1 :])
    said = _MODULES.sub("", " ".join([*lines[max(first, 0) :][:1], *below]))
    return said if len(said) <= limit else f"{said[: limit - 1]}…"
