"""Server-sent events in vLLM's form: one line of data each."""

BETWEEN = b"\n\n"
DONE = b"[DONE]"
"""The data of a stream's last event."""
_DATA = b"data:"


def data_of(event: bytes) -> bytes | None:
    """Return the data of an event; None without one."""
    return event.removeprefix(_DATA).strip() if event.startswith(_DATA) else None


def before_done(events: bytes, data: bytes) -> bytes:
    """Return events with one more before the stream's last, if that is among them."""
    added = with_data(data) + BETWEEN
    return BETWEEN.join(
        added + event if data_of(event) == DONE else event for event in events.split(BETWEEN)
    )


def with_data(data: bytes) -> bytes:
    """Return an event with this data, without the separator after it."""
    return _DATA + b" " + data
