"""Each line about a fleet names it."""

import ast
from collections.abc import Iterator
from pathlib import Path

OPERATOR = Path(__file__).parents[3] / "operator" / "rlfleet_operator"
OF_ALL_FLEETS = {"metrics.py", "kube/lease.py", "kube/pod_cache.py", "reconcile/supervisor.py"}
"""Modules that log of the process as well."""


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
