"""Operator, sidecar and engine extension log in one format."""

import ast
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rlfleet_contract.json_lines import JsonLines

ROOT = Path(__file__).parents[3]
PACKAGES = ("operator/rlfleet_operator", "sidecar/rlfleet_sidecar", "sidecar/rlfleet_engine")
ABOUT = {"namespace": "rl", "fleet": "qwen", "worker": "qwen-0"}
FIRST = ["time", "level", "logger", "message"]
SAID = f"""
try:
    raise LookupError("lost")
except LookupError:
    log.warning("Command failed", exc_info=True, extra={ABOUT | {"version": "v1", "error": None}})
"""
SET_UP = {
    "operator": "import logging\nfrom rlfleet_operator import json_logs\n"
    "json_logs.configure('INFO')\nlog = logging.getLogger('rlfleet_operator.x')",
    "sidecar": "import logging\nfrom rlfleet_sidecar import json_logs\n"
    f"json_logs.configure('INFO', **{ABOUT})\nlog = logging.getLogger('rlfleet_sidecar.x')",
    "extension": "from rlfleet_engine import json_logs\nlog = json_logs.logger('rlfleet_engine.x')",
}


def record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("x").makeRecord(
        "x", logging.WARNING, "f", 1, "A pass failed", (), None, extra=extra
    )


def line(said: logging.LogRecord, **everywhere: str) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(JsonLines(**everywhere).format(said))
    return written


def written_by(process: str) -> dict[str, Any]:
    words = [sys.executable, "-P", "-c", SET_UP[process] + SAID]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    (only,) = (ran.stdout + ran.stderr).splitlines()
    found: dict[str, Any] = json.loads(only)
    return found


def test_the_three_write_the_same_keys_for_the_same_record() -> None:
    operator, *others = (written_by(process) for process in SET_UP)

    assert list(operator) == [*FIRST, *ABOUT, "version", "exception"]
    assert [list(other) for other in others] == [list(operator)] * 2


def test_the_time_is_of_the_record_in_utc_with_milliseconds() -> None:
    said = record()
    said.created = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC).timestamp()

    assert line(said)["time"] == "2026-01-02T03:04:05.006Z"


def test_an_error_is_one_line_with_its_traceback_at_the_end() -> None:
    error, said = LookupError("what\nwas lost"), record(**ABOUT)
    said.exc_info = (LookupError, error, None)

    assert "\n" not in JsonLines().format(said)
    assert list(line(said))[-1] == "exception"
    assert "LookupError: what\nwas lost" in line(said)["exception"]


@pytest.mark.parametrize("value", [b"\xff", object(), {"a": {1}}, Path("/x"), "Übergröße"])
def test_any_field_can_be_written(value: object) -> None:
    assert "field" in line(record(field=value))


def test_a_field_of_every_line_gives_way_to_that_of_a_call() -> None:
    assert line(record(worker="qwen-1"), **ABOUT)["worker"] == "qwen-1"
    assert line(record(), **ABOUT)["worker"] == "qwen-0"


@pytest.mark.parametrize("name", ["time", "level", "logger", "exception", "color_message"])
def test_no_field_takes_the_place_of_a_key(name: str) -> None:
    assert "taken" not in line(record(**{name: "taken"})).values()


def test_what_is_none_is_left_out_and_what_is_empty_is_not() -> None:
    assert list(line(record(version=None, left=0, markers=[]))) == [*FIRST, "left", "markers"]


def logged() -> Iterator[tuple[str, ast.Call]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                function = node.func if isinstance(node, ast.Call) else None
                if isinstance(node, ast.Call) and isinstance(function, ast.Attribute):
                    of = function.value
                    if isinstance(of, ast.Name) and of.id == "_log":
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_a_message_is_constant_text_with_a_capital_letter() -> None:
    found = list(logged())

    wrong = [where for where, call in found if not _is_constant(call)]

    assert len(found) > 60
    assert not wrong


def _is_constant(call: ast.Call) -> bool:
    first = call.args[0]
    if len(call.args) != 1 or not isinstance(first, ast.Constant):
        return False
    return str(first.value)[:1].isupper() and "%" not in str(first.value)
