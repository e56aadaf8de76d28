"""Operator and sidecar log in one format."""

import ast
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from rlfleet_operator.json_logs import JsonLines
from rlfleet_sidecar import json_logs as sidecar

ABOUT = {"namespace": "rl", "fleet": "qwen", "worker": "qwen-0"}


OPERATOR = Path(__file__).parents[3] / "operator" / "rlfleet_operator"
OF_ALL_FLEETS = {"kube/lease.py", "kube/pod_cache.py", "reconcile/supervisor.py"}
"""Modules that log of the process as well."""


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


def logged() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(OPERATOR.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            function = node.func if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and isinstance(function, ast.Attribute):
                of = function.value
                if isinstance(of, ast.Name) and of.id == "_log":
                    yield f"{path.relative_to(OPERATOR)}", node


def test_each_line_of_a_module_that_works_for_one_fleet_has_fields() -> None:
    found = [(where, call) for where, call in logged() if where not in OF_ALL_FLEETS]

    bare = [(where, call.lineno) for where, call in found if "extra" not in _names(call)]

    assert len(found) > 10
    assert not bare


def _names(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}
