"""What is kept of a run on each release of vLLM, and the page about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from dev.docs import compatibility_page
from dev.releases import matrix
from dev.steps import StepFailed
from rlfleet_engine.vllm.uses import USES

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.e2e.test_proof" name="a_version[1e-3]"/>
<testcase classname="tests.e2e.test_faults" name="a_kill"><failure message="x"/></testcase>
<testcase classname="tests.e2e.test_faults" name="a_fleet"><error message="x"/></testcase>
<testcase classname="tests.e2e.test_rollout" name="a_way"><skipped/></testcase>
</testsuite></testsuites>"""


def row(passed: int = 3, **more: Any) -> dict[str, Any]:
    counts = {"passed": passed, "failures": [], "seconds": 1, "date": "2026-11-23"}
    return {
        "packages": {"torch": "2", "transformers": "5"},
        "suites": {"contract": counts | more},
        "uses": {str(use): ", ".join(use.takes) for uses in USES.values() for use in uses},
    }


def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: dict[str, Any]) -> str:
    results = tmp_path / "matrix.json"
    results.write_text(json.dumps(rows))
    monkeypatch.setattr(compatibility_page, "RESULTS", results)
    return compatibility_page.page()


def test_the_report_of_a_suite_is_counted_and_its_failures_are_named() -> None:
    counts, failures = matrix.tallied(REPORT)

    assert counts == {"passed": 1, "failed": 2, "skipped": 1}
    assert failures == ["test_faults::a_kill", "test_faults::a_fleet"]


def test_a_suite_that_runs_again_leaves_what_others_found() -> None:
    old = {"uses": {"a": ""}, "suites": {"fleet": {"passed": 1}, "models": {"passed": 6}}}

    new = matrix.merged(old, {"suites": {"fleet": {"passed": 2}}})

    assert new == {"uses": {"a": ""}, "suites": {"fleet": {"passed": 2}, "models": {"passed": 6}}}


def test_the_page_shows_what_ran_what_failed_and_what_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = row(2, failed=1, failures=["test_contract::a_reply"])

    page = shown(tmp_path, monkeypatch, {"0.31.0": failed, "0.32.0": row()})

    assert "| 0.31.0 | 2 of 3 | not run | not run | " in page
    assert "- 0.31.0, contract: `test_contract::a_reply`" in page
    assert "Each is the same in all of them." in page


def test_a_suite_that_ran_without_the_cluster_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shown(tmp_path, monkeypatch, {"0.31.0": row(where="processes"), "0.32.0": row()})

    assert "| 3 of 3 (processes) |" in page


def test_the_page_names_what_a_release_lacks_and_what_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = row()["uses"] | {"POST /pause": "lacks mode", "POST /resume": "missing"}
    other = {"packages": row()["packages"], "uses": uses}

    page = shown(tmp_path, monkeypatch, {"0.32.0": row(), "0.33.0": other})

    assert "| `POST /pause` | 0.33.0 | does not take `mode` | No control route answers |" in page
    assert "| `POST /resume` | 0.33.0 | gone | No control route answers |" in page
    assert "| 0.33.0 | not run | not run | not run |" in page


@pytest.mark.parametrize("report", ["", "<testsuites><testsuite/></testsuites>"])
def test_a_suite_in_which_nothing_ran_is_an_error(report: str) -> None:
    with pytest.raises(StepFailed, match="no test ran"):
        matrix.tallied(report)
