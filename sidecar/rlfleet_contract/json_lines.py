"""The form of a log line, the same in operator, sidecar and engine extension.

One JSON object: time (UTC, milliseconds), level, logger, message, then fields, then exception.
A message is constant text; values are fields, which a call passes by ``extra={...}``.
It must stay true that no field hides one of these keys, and that None is left out.
"""

from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

_KEYS = {"levelname": "level", "name": "logger", "exc_info": "exception", "stack_info": "stack"}
_FOREIGN = ("taskName", "color_message")
"""Not fields: asyncio's name of a task, and uvicorn's message with terminal colours."""


class JsonLines(JsonFormatter):
    """Formats log records; ``everywhere`` are the fields of each line, such as the fleet."""

    def __init__(self, **everywhere: str) -> None:
        super().__init__(
            "%(levelname)s %(name)s %(message)s",
            timestamp="time",
            rename_fields=_KEYS,
            reserved_attrs=[*RESERVED_ATTRS, *_FOREIGN, "time", *_KEYS.values()],
            static_fields=everywhere,
            json_default=str,
            json_ensure_ascii=False,
        )

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Put the time first and the exception last, and leave out what is None."""
        time, exception = log_data.pop("time"), log_data.pop("exception", None)
        written = time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        line = {"time": written, **log_data, "exception": exception}
        return {key: value for key, value in line.items() if value is not None}
