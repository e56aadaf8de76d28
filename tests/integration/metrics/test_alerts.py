"""The alerts of the chart by promtool: each fires, and each stays silent where it should."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.integration.conftest import ROOT
from tests.integration.metrics.promtool import promtool

RULES = ROOT / "charts" / "rlfleet" / "rules" / "rlfleet.yaml"
CASES = Path(__file__).parent / "alerts.yaml"


def rules() -> dict[str, Any]:
    """Return the file of rules without annotations, which no case repeats."""
    found: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for group in found["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    return found


def tried(folder: Path, cases: str, wanted: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the cases on these rules."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(wanted))
    (folder / "alerts.yaml").write_text(cases)
    return promtool("test", "rules", str(folder / "alerts.yaml"))


def test_prometheus_takes_the_file_of_rules_with_its_texts() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_and_does_not_where_it_should_not(tmp_path: Path) -> None:
    done = tried(tmp_path, CASES.read_text(), rules())

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases: dict[str, set[bool]] = {}
    for group in yaml.safe_load(CASES.read_text())["tests"]:
        for case in group["alert_rule_test"]:
            cases.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))

    names = {rule["alert"] for group in rules()["groups"] for rule in group["rules"]}
    assert cases == {name: {True, False} for name in names}


def test_a_rule_that_never_fires_is_seen(tmp_path: Path) -> None:
    """Otherwise the cases would show nothing."""
    broken = rules()
    for rule in broken["groups"][0]["rules"]:
        rule["expr"] = "vector(1) > 2"

    done = tried(tmp_path, CASES.read_text(), broken)

    assert done.returncode != 0
    assert "RLFleetLongWindow" in done.stdout + done.stderr
