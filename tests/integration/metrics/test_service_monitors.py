"""ServiceMonitors find what PodMonitors find: the operator's pods, and each worker once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfleet_contract import paths
from rlfleet_operator.core.manifests.owned_objects import services
from rlfleet_operator.core.model.world import FLEET_LABEL
from tests import fleets
from tests.integration.chart.rendering import objects, refusal
from tests.integration.conftest import IMAGES
from tests.integration.metrics.promtool import promtool

ENABLED = "metrics: {serviceMonitors: {enabled: true, interval: 7s, labels: {team: rl}}}"
PODS = ENABLED.replace("serviceMonitors", "podMonitors")
KINDS = ("operator", "engines")


def spec(kind: str, values: str = ENABLED) -> dict[str, Any]:
    """Return the spec of one of the two ServiceMonitors."""
    found: dict[str, Any] = objects(values=values)[f"ServiceMonitor/rlfleet-{kind}"]["spec"]
    return found


def selected(monitor: dict[str, Any], service: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ports of a Service that a ServiceMonitor has scraped."""
    (endpoint,) = monitor["endpoints"]
    labels = monitor["selector"]["matchLabels"]
    if not labels.items() <= service["metadata"]["labels"].items():
        return []
    return [port for port in service["spec"]["ports"] if port["name"] == endpoint["port"]]


def test_of_the_chart_s_services_the_one_with_metrics_is_scraped() -> None:
    found = objects(values=f"{{operator: {{metricsPort: 9999}}, {ENABLED}}}")
    made = {name: one for name, one in found.items() if one["kind"] == "Service"}
    ports = {name: selected(spec("operator"), one) for name, one in made.items()}

    assert len(made) == 2
    assert [port["port"] for port in ports.pop("Service/rlfleet-metrics")] == [9999]
    assert list(ports.values()) == [[]]
    assert [selected(spec("engines"), one) for one in made.values()] == [[], []]
    # The label `namespace` is a fleet's.
    assert spec("operator")["endpoints"][0]["honorLabels"] is True


@pytest.mark.parametrize("kind", KINDS)
def test_labels_interval_and_namespaces_are_those_of_the_pod_monitors(kind: str) -> None:
    ours = objects(values=ENABLED)[f"ServiceMonitor/rlfleet-{kind}"]
    theirs = objects(values=PODS)[f"PodMonitor/rlfleet-{kind}"]
    endpoints = (ours["spec"]["endpoints"], theirs["spec"]["podMetricsEndpoints"])
    (own,), (other,) = endpoints

    assert ours["metadata"] == theirs["metadata"]
    assert ours["metadata"]["labels"]["team"] == "rl"
    assert ours["spec"].get("namespaceSelector") == theirs["spec"].get("namespaceSelector")
    assert (own["interval"], own["port"]) == (other["interval"], other["port"])
    assert own["interval"] == "7s"
    assert own.get("honorLabels") == other.get("honorLabels")
    # One more: which of a fleet's Services it is.
    assert own.get("relabelings", [])[-1:] == other.get("relabelings", [])


def test_both_kinds_at_once_are_refused() -> None:
    values = "metrics: {podMonitors: {enabled: true}, serviceMonitors: {enabled: true}}"

    assert "scrape each target twice; enable one of them" in refusal(*IMAGES, values=values)


def target(fleet: str, service: dict[str, Any]) -> dict[str, Any]:
    """Return a worker as Prometheus finds it by a Service."""
    about = service["metadata"]
    meta = {
        "__meta_kubernetes_service_name": about["name"],
        "__meta_kubernetes_service_label_rlfleet_dev_fleet": about["labels"][FLEET_LABEL],
        "__meta_kubernetes_pod_label_rlfleet_dev_fleet": fleet,
        "service": about["name"],
    }
    return {"targets": [f"{fleet}-0:{paths.ENGINE_PORT}"], "labels": meta}


def test_prometheus_scrapes_a_worker_by_one_of_its_fleet_s_services(tmp_path: Path) -> None:
    """Also one whose Service has the name of a headless one, of a fleet in another namespace."""
    monitor = spec("engines")
    found = []
    for fleet in ("qwen", "qwen-workers", "big"):
        made = services(replace(fleets.fleet(), name=fleet))
        assert [len(selected(monitor, service)) for service in made] == [1, 1]
        found += [target(fleet, service) for service in made]
    relabelings = [
        {
            {"sourceLabels": "source_labels", "targetLabel": "target_label"}.get(key, key): value
            for key, value in one.items()
        }
        for one in monitor["endpoints"][0]["relabelings"]
    ]
    job = {"job_name": "engines", "static_configs": found, "relabel_configs": relabelings}
    config = tmp_path / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"scrape_configs": [job]}))

    done = promtool("check", "service-discovery", "--timeout=1s", str(config), "engines")

    assert done.returncode == 0, done.stderr
    known = [one["labels"] for one in json.loads(done.stdout)]
    assert len(known) == len(found)
    assert sorted((one["fleet"], one["service"]) for one in known if one) == [
        ("big", "big"),
        ("qwen", "qwen"),
        ("qwen-workers", "qwen-workers"),
    ]
