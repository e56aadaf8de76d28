"""Alerts, runbooks, dashboard and docs name metrics that exist."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from rlfleet_contract.worker.problems import Code
from rlfleet_operator import metrics
from rlfleet_operator.core.metrics.additions import FAILURES, REJECTIONS
from rlfleet_operator.core.metrics.gauges import FAMILIES
from rlfleet_operator.core.model.worker_phase import Phase
from rlfleet_operator.core.rollout.rollout import ENDED
from rlfleet_operator.core.status import events, verdict

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "rlfleet"
RUNBOOKS = ROOT / "docs" / "runbooks"
VLLM = {"vllm:num_requests_running"}
"""What the e2e tests see real vLLM export."""
NAME = re.compile(r"\b(?:rlfleet_[a-z_]+|vllm:[a-z_]+)")
LABELS: dict[str, set[str]] = {
    "phase": set(Phase),
    "type": {v for k, v in vars(verdict).items() if k.isupper() and isinstance(v, str)},
    "kind": set(FAILURES),
    "code": {*REJECTIONS, *Code},
    "result": set(ENDED),
    "use": {"target", "serving", "latest"},
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((CHART / "rules" / "rlfleet.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[str]:
    board = json.loads((CHART / "dashboards" / "rlfleet.json").read_text())
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (one["query"] for one in board["templating"]["list"] if one["type"] == "query")


def exported() -> set[str]:
    """Return the names of all series that the operator exports."""
    metrics.begin("rl", "named")
    found = set(FAMILIES)
    for family in REGISTRY.collect():
        # A family with labels of which none is known yet has no sample.
        found |= {family.name} | {sample.name for sample in family.samples}
        found |= {f"{family.name}_total"} if family.type == "counter" else set()
    metrics.forget("rl", "named")
    return found


EXPRESSIONS = [*(rule["expr"] for rule in rules()), *queries()]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_query_names_metrics_and_values_that_exist(expression: str) -> None:
    names = NAME.findall(expression)

    assert names
    assert set(names) <= exported() | VLLM
    for label, values in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"$]+)"', expression):
        if label in LABELS:
            assert set(values.split("|")) <= LABELS[label]


def test_a_name_that_does_not_exist_is_seen() -> None:
    assert "rlfleet_workers_wanted" not in exported()
    assert "rlfleet_rejections_total" in exported()


def test_each_alert_has_one_runbook_and_each_runbook_an_alert() -> None:
    alerts = {rule["alert"]: rule for rule in rules()}
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}

    assert len(alerts) >= 10
    assert pages == alerts.keys()
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook"] == f"docs/runbooks/{name}.md"
        assert rule["labels"]["severity"] in {"critical", "warning"}


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("RL*.md")), ids=lambda page: page.stem)
def test_a_runbook_answers_three_questions_on_one_page(page: Path) -> None:
    text = page.read_text()

    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Effect", "Look", "End it"]
    assert "kubectl" in text
    assert len(text.splitlines()) <= 40


def test_the_page_about_metrics_names_each_of_the_operator_s() -> None:
    text = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    ours = {name for name in FAMILIES if name.startswith("rlfleet_")}

    for name in ours:
        assert name in text or f"`_{name.removeprefix('rlfleet_')}" in text, name


def test_the_page_about_metrics_names_each_event_s_reason() -> None:
    text = (ROOT / "docs" / "how-to" / "monitor.md").read_text().partition("## Events")[2]
    code = inspect.getsource(events)
    reasons = set(re.findall(r'"(?:Normal|Warning)",\s*"([A-Z][A-Za-z]+)"', code))

    assert {"RolloutStarted", "CanaryReady", "WorkerLost"} < reasons
    assert {one for one in {*reasons, "WorkersChanged"} if one not in text} == set()
