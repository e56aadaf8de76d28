"""The chart as Helm renders it, and what a real API server says to it."""

import subprocess
from typing import Any

import pytest
import yaml

from dev.kubernetes import apiserver
from tests.integration.conftest import ROOT, kubectl

pytestmark = pytest.mark.integration


def rendered(*words: str) -> str:
    """Return what ``helm install`` would send."""
    command = ["helm", "template", "rlfleet", str(ROOT / "charts" / "rlfleet"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def objects(text: str) -> dict[str, dict[str, Any]]:
    """Return the rendered objects by kind, of each the last."""
    return {one["kind"]: one for one in yaml.safe_load_all(text) if one}


@pytest.mark.parametrize(
    "words",
    [(), ("--set", "operator.fleetsPort=0"), ("--set", "namespaces={default}")],
    ids=["as it is", "without the fleet API", "for one namespace"],
)
def test_the_api_server_takes_every_object(
    plane: apiserver.ControlPlane, words: tuple[str, ...]
) -> None:
    text = rendered("--namespace", "default", "--set", "crds.enabled=false", *words)

    kubectl(plane, "apply", "--dry-run=server", "-f", "-", stdin=text)


def test_the_fleets_address_leads_to_each_replica_s_port() -> None:
    found = objects(rendered("--set", "operator.fleetsPort=9000"))
    (port,) = found["Service"]["spec"]["ports"]
    pod = found["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}

    assert (port["port"], ports[port["targetPort"]]) == (9000, 9000)
    assert {"name": "RLFLEET_FLEETS_PORT", "value": "9000"} in container["env"]
    assert found["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_no_service_of_the_namespace_is_taken_for_a_setting() -> None:
    """A Service rlfleet-admin would set RLFLEET_ADMIN_PORT to an address."""
    pod = objects(rendered())["Deployment"]["spec"]["template"]["spec"]

    assert pod["enableServiceLinks"] is False


def test_without_a_port_there_is_no_address() -> None:
    found = objects(rendered("--set", "operator.fleetsPort=0"))
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]

    assert "Service" not in found
    assert {p["name"] for p in container["ports"]} == {"metrics"}
    assert {"name": "RLFLEET_FLEETS_PORT", "value": "0"} in container["env"]
