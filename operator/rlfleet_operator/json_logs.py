"""One JSON object a line, as the sidecar's json_logs.py writes it: the two have the same keys."""

import json
import logging
import sys
import time

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What each record has; the rest are fields that a call gave."""
_QUIET = ("kopf.objects", "httpx")
"""They tell of every event and of every request; one line for a transition is ours."""


def configure(level: str) -> None:
    """Send all that is logged in this process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """Writes time, level and message first, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "message": record.getMessage(),
        }
        given = {k: v for k, v in vars(record).items() if k not in _PLAIN and v is not None}
        line |= {key: value for key, value in given.items() if key not in line}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
