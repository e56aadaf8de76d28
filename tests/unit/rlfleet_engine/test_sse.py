"""Server-sent events, taken apart and put together."""

import pytest

from rlfleet_engine.sse import before_done, data_of, with_data


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (b"data: [DONE]\n\n", b"data: 7\n\ndata: [DONE]\n\n"),
        (b"data: 1\n\ndata: [DONE]\n\n", b"data: 1\n\ndata: 7\n\ndata: [DONE]\n\n"),
        (b"data:[DONE]\n\n", b"data: 7\n\ndata:[DONE]\n\n"),
        (b'data: {"content":"data: [DONE]"}\n\n', b'data: {"content":"data: [DONE]"}\n\n'),
        (b"event: message_stop\ndata: {}\n\n", b"event: message_stop\ndata: {}\n\n"),
        (b"", b""),
    ],
)
def test_one_more_event_stands_before_the_last(events: bytes, expected: bytes) -> None:
    assert before_done(events, b"7") == expected


def test_data_is_taken_out_and_put_in() -> None:
    assert data_of(with_data(b"{}")) == b"{}"
    assert data_of(b": a comment") is None
