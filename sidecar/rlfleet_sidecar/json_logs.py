"""One JSON object a line on stdout: a constant sentence and fields, no secret, no prompt."""

import json
import logging
import sys
import time

_FIELDS = "fields"


def configure(level: str) -> None:
    """Send everything that is logged in this process to stdout as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # httpx tells each request at INFO, the polls among them.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def fields(**named: object) -> dict[str, dict[str, object]]:
    """Make the ``extra`` of a log call from fields; those that are None are left out."""
    return {_FIELDS: {name: value for name, value in named.items() if value is not None}}


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "message": record.getMessage(),
        }
        line |= getattr(record, _FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
