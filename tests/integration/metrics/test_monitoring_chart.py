"""What the chart adds for Prometheus and Grafana, each by a value that is off by default."""

from typing import Any

import pytest
import yaml

from rlfleet_contract import paths
from rlfleet_operator.core.manifests import pod_manifest
from tests import fleets
from tests.integration.chart import rendering
from tests.integration.chart.rendering import CHART

EACH = {
    "service": "metrics.service=true",
    "monitors": "metrics.podMonitors.enabled=true",
    "services": "metrics.serviceMonitors.enabled=true",
    "rules": "metrics.rules.enabled=true",
    "dashboard": "metrics.dashboard.enabled=true",
}


def rendered(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects by kind and name."""
    sets = [word for value in values for word in ("--set", value)]
    found = [one for one in yaml.safe_load_all(rendering.rendered(*sets)) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


@pytest.mark.parametrize(
    ("value", "adds"),
    [
        ("service", {("Service", "rlfleet-metrics")}),
        ("monitors", {("PodMonitor", "rlfleet-operator"), ("PodMonitor", "rlfleet-engines")}),
        (
            "services",
            {
                ("Service", "rlfleet-metrics"),
                ("ServiceMonitor", "rlfleet-operator"),
                ("ServiceMonitor", "rlfleet-engines"),
            },
        ),
        ("rules", {("PrometheusRule", "rlfleet")}),
        ("dashboard", {("ConfigMap", "rlfleet-dashboard")}),
    ],
)
def test_a_value_adds_its_objects_only(value: str, adds: set[tuple[str, str]]) -> None:
    assert rendered(EACH[value]).keys() - rendered().keys() == adds


def test_the_operator_s_targets_are_its_pods_port_of_metrics() -> None:
    found = rendered(EACH["service"], EACH["monitors"], "operator.metricsPort=9999")
    pod = found["Deployment", "rlfleet"]["spec"]["template"]
    ports = {p["name"]: p["containerPort"] for p in pod["spec"]["containers"][0]["ports"]}
    service = found["Service", "rlfleet-metrics"]["spec"]
    monitor = found["PodMonitor", "rlfleet-operator"]["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]

    assert ports[endpoint["port"]] == ports[service["ports"][0]["targetPort"]] == 9999
    # The label `namespace` is a fleet's.
    assert endpoint["honorLabels"] is True
    for selector in (service["selector"], monitor["selector"]["matchLabels"]):
        assert selector.items() <= pod["metadata"]["labels"].items()


def test_the_engines_targets_are_the_pods_that_the_operator_makes() -> None:
    monitor = rendered(EACH["monitors"])["PodMonitor", "rlfleet-engines"]["spec"]
    pod = pod_manifest.pod(fleets.fleet(), 0, pod_manifest.Defaults("worker:1"))
    (engine,) = pod["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in engine["ports"]}

    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert ports[monitor["podMetricsEndpoints"][0]["port"]] == paths.ENGINE_PORT
    assert monitor["namespaceSelector"] == {"any": True}


def test_engines_are_found_where_the_operator_drives_fleets() -> None:
    found = rendered(EACH["monitors"], "namespaces={a,b}")

    selector = found["PodMonitor", "rlfleet-engines"]["spec"]["namespaceSelector"]
    assert selector == {"matchNames": ["a", "b"]}


def test_files_are_rendered_as_they_are() -> None:
    """Their braces are Prometheus's and Grafana's, not Helm's."""
    found = rendered(EACH["rules"], EACH["dashboard"], "metrics.rules.labels.team=rl")
    rules = found["PrometheusRule", "rlfleet"]
    dashboard = found["ConfigMap", "rlfleet-dashboard"]["data"]["rlfleet.json"]

    assert rules["spec"] == yaml.safe_load((CHART / "rules" / "rlfleet.yaml").read_text())
    assert dashboard.strip() == (CHART / "dashboards" / "rlfleet.json").read_text().strip()
    assert rules["metadata"]["labels"]["team"] == "rl"


def alerts(*values: str) -> dict[str, Any]:
    """Return the rules of the chart by their alerts."""
    (group,) = rendered(EACH["rules"], *values)["PrometheusRule", "rlfleet"]["spec"]["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("limit", [1, 7200, 10_000_000])
def test_the_limit_of_a_trainer_s_silence_is_a_value(limit: int) -> None:
    name, before = "RLFleetNoNewVersion", alerts()
    now = alerts(f"metrics.rules.noNewVersionSeconds={limit}")

    assert before[name]["expr"].count("> 86400 ") == 1
    expr = before[name]["expr"].replace("> 86400 ", f"> {limit} ")
    assert now == before | {name: before[name] | {"expr": expr}}


def test_without_a_limit_no_silence_of_a_trainer_is_an_alert() -> None:
    all_of_them = alerts()

    left = alerts("metrics.rules.noNewVersionSeconds=0")

    del all_of_them["RLFleetNoNewVersion"]
    assert left == all_of_them
