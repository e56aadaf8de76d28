"""A worker's pod whose sidecar speaks HTTPS, and what the operator observes of it."""

from typing import Any

import pytest

from rlfleet_operator.core.manifests import pod_manifest, sidecar_tls
from rlfleet_operator.core.model.pod import pod_from
from rlfleet_operator.core.model.worker_pod import Pod
from tests import fleets

DEFAULTS = pod_manifest.Defaults(worker_image="worker:1")
MOUNTED = "/var/run/rlfleet/tls"


def made(**spec: Any) -> dict[str, Any]:
    return pod_manifest.pod(fleets.fleet(spec), 0, DEFAULTS)


def observed(manifest: dict[str, Any]) -> Pod:
    raw = {**manifest, "metadata": {**manifest["metadata"], "uid": "p-0"}}
    found = pod_from(raw)
    assert found is not None
    return found


def test_the_sidecar_alone_mounts_the_certificate_and_is_probed_over_https() -> None:
    spec = made(sidecar={"tlsSecret": "qwen-tls"})["spec"]

    [sidecar], [engine] = spec["initContainers"], spec["containers"]
    assert {"name": "sidecar-tls", "secret": {"secretName": "qwen-tls"}} in spec["volumes"]
    assert {"name": "sidecar-tls", "mountPath": MOUNTED, "readOnly": True} in sidecar[
        "volumeMounts"
    ]
    assert "sidecar-tls" not in {mount["name"] for mount in engine["volumeMounts"]}
    env = {one["name"]: one.get("value") for one in sidecar["env"]}
    assert env["RLFLEET_TLS_DIR"] == MOUNTED
    assert env["RLFLEET_TLS_NAME"] == "qwen-workers.rl.svc"
    probes = [sidecar[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}
    assert "scheme" not in engine["livenessProbe"]["httpGet"]


def test_without_the_field_nothing_of_a_pod_changes() -> None:
    text = str(made())

    assert "tls" not in text.lower().replace("title", "")
    assert "HTTPS" not in text


def test_the_field_replaces_pods() -> None:
    before, after = fleets.fleet(), fleets.fleet({"sidecar": {"tlsSecret": "qwen-tls"}})

    assert pod_manifest.template_hash(before) != pod_manifest.template_hash(after)


@pytest.mark.parametrize("secret", [None, "qwen-tls"])
def test_a_pod_says_whether_its_sidecar_speaks_https(secret: str | None) -> None:
    manifest = made(sidecar={"tlsSecret": secret} if secret else {})

    assert (observed(manifest).tls_secret, observed(manifest).admin_port) == (secret, 8090)


def test_a_volume_of_the_template_that_is_called_tls_is_another_matter() -> None:
    volume = {"name": "tls", "secret": {"secretName": "of-a-proxy"}}

    assert observed(made(template={"spec": {"volumes": [volume]}})).tls_secret is None


def test_a_pod_says_at_which_port_its_sidecar_listens() -> None:
    port = {"name": "admin", "containerPort": 9090}
    template = {"spec": {"initContainers": [{"name": "sidecar", "ports": [port]}]}}

    assert observed(made(template=template)).admin_port == 9090


def test_the_name_is_that_of_the_headless_service() -> None:
    assert sidecar_tls.server_name("qwen", "rl") == "qwen-workers.rl.svc"
