"""Operator and sidecar log in one format."""

import json
import logging
from datetime import datetime

import pytest

from rlfleet_operator.logs import JsonLines
from rlfleet_sidecar import logs as sidecar

ABOUT = {"namespace": "rl", "fleet": "qwen", "worker": "qwen-0"}


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("x").makeRecord(
        "x", logging.WARNING, "f", 1, "a pass failed", (), None, extra=extra
    )


def test_the_operator_and_the_sidecar_write_the_same_line() -> None:
    said, known = record(**ABOUT, error=None), record(**sidecar.fields(**ABOUT, error=None))
    known.created, known.msecs = said.created, said.msecs

    line = JsonLines().format(said)

    assert line == sidecar._JsonLines().format(known)  # noqa: SLF001
    assert list(json.loads(line)) == ["time", "level", "message", "namespace", "fleet", "worker"]
    assert datetime.fromisoformat(json.loads(line)["time"]).tzinfo is not None


def test_an_error_is_one_line_with_its_traceback() -> None:
    error, said = LookupError("what\nwas lost"), record()
    said.exc_info = (LookupError, error, None)

    line = JsonLines().format(said)

    assert "\n" not in line
    assert "LookupError" in json.loads(line)["exception"]


@pytest.mark.parametrize("value", [b"\xff", object(), {"a": {1}}])
def test_any_field_can_be_written(value: object) -> None:
    assert "field" in json.loads(JsonLines().format(record(field=value)))
