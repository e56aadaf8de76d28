"""Names, labels, accounts and images of the chart's objects, and the values that Helm refuses."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfleet_kubectl.core.names import OPERATOR_PODS
from tests.integration.chart.rendering import CHART, VERSION, helm, objects, pod, refusal
from tests.integration.conftest import IMAGES

DIGEST = "sha256:" + 64 * "a"
RECOMMENDED = {
    f"app.kubernetes.io/{name}"
    for name in ("name", "instance", "version", "component", "part-of", "managed-by")
}
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/"""


def test_no_service_of_the_namespace_is_taken_for_a_setting() -> None:
    """A Service rlfleet-admin would set RLFLEET_ADMIN_PORT to an address."""
    assert pod()["spec"]["enableServiceLinks"] is False


def test_an_operator_that_is_not_ready_does_not_hold_up_a_drain() -> None:
    budget = objects()["PodDisruptionBudget/rlfleet"]["spec"]

    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_the_fleets_address_leads_to_each_replica_s_port() -> None:
    found = objects("--set=operator.fleetsPort=9000")
    template = found["Deployment/rlfleet"]["spec"]["template"]
    service = found["Service/rlfleet"]["spec"]
    (container,) = template["spec"]["containers"]
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    (port,) = service["ports"]

    assert (port["port"], ports[port["targetPort"]]) == (9000, 9000)
    assert service["selector"].items() <= template["metadata"]["labels"].items()


def test_every_object_has_the_labels_that_kubernetes_recommends() -> None:
    found = objects("--set=networkPolicy.enabled=true", "--set=metrics.service=true")

    lacking = {name: RECOMMENDED - one["metadata"]["labels"].keys() for name, one in found.items()}
    assert len(found) > 12
    assert {name for name, labels in lacking.items() if labels} == set()


def test_labels_of_all_objects_reach_all_and_part_no_pod_from_its_deployment() -> None:
    values = """
    commonLabels: {team: rl, pool: all, app.kubernetes.io/name: mine}
    podLabels: {pool: cpu}
    """
    found = objects("--set=networkPolicy.enabled=true", values=values)
    deployment = found["Deployment/rlfleet"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]

    assert {one["metadata"]["labels"].get("team") for one in found.values()} == {"rl"}
    assert (labels["team"], labels["pool"]) == ("rl", "cpu")
    assert deployment["selector"]["matchLabels"].items() <= labels.items()


def test_the_plugin_finds_the_operator_under_any_name() -> None:
    wanted = dict(one.split("=") for one in OPERATOR_PODS.split(","))
    found = objects("--set=nameOverride=other", name="rl")
    deployment = found["Deployment/rl-other"]

    for one in (deployment, deployment["spec"]["template"]):
        assert wanted.items() <= one["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("rlfleet", "", "rlfleet"),
        ("rl", "nameOverride: operator", "rl-operator"),
        ("my-operator", "nameOverride: operator", "my-operator"),
        ("rl", "fullnameOverride: weights", "weights"),
        # No two of these may get one name: a release is of its namespace, a ClusterRole is not.
        ("r" * 53, "", "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr-432e4992"),
        ("r" * 52, "", "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr-4402d97d"),
        ("v0.2", "", "v0-2-aba0efd9"),
        ("0-2", "", "rlfleet-0-2-27e95533"),
        ("1.rl", "nameOverride: a", "rlfleet-1-rl-a-bebdb7d3"),
    ],
)
def test_objects_have_the_release_s_name_or_the_wanted_one(
    release: str, values: str, name: str
) -> None:
    found = objects(values=values, name=release)

    assert f"Deployment/{name}" in found
    assert {one.partition("/")[2].startswith(name) for one in found} == {True}
    (container,) = found[f"Deployment/{name}"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "RLFLEET_LEASE_NAME", "value": name} in container["env"]
    assert found[f"Role/{name}-leader"]["rules"][1]["resourceNames"] == [name]


def test_names_that_yaml_reads_as_numbers_stay_names() -> None:
    values = """
    nameOverride: "12"
    fullnameOverride: "off"
    namespaces: ["2024"]
    networkPolicy: {enabled: true}
    serviceAccount: {name: "7"}
    operator: {fleetsTLS: {secretName: "0x1"}}
    """
    found = objects("--namespace=2025", values=values, name="yes")
    texts = [text for one in found.values() for text in _names(one)]

    assert [text for text in texts if not isinstance(text, str)] == []
    assert {"12", "off", "2024", "2025", "7", "0x1", "yes"} <= set(texts)


def _names(value: Any) -> Iterator[Any]:
    """Yield the names, namespaces and labels in an object."""
    if isinstance(value, list):
        for one in value:
            yield from _names(one)
    if isinstance(value, dict):
        for key, one in value.items():
            if key in {"labels", "matchLabels", "selector"} and "matchLabels" not in one:
                yield from one.values()
            elif key in {"name", "namespace", "serviceAccountName", "secretName"}:
                yield one
            else:
                yield from _names(one)


@pytest.mark.parametrize(
    ("values", "account"),
    [
        ("serviceAccount: {name: other}", "other"),
        ("serviceAccount: {name: other, create: false}", "other"),
        ("serviceAccount: {create: false}", "default"),
    ],
)
def test_roles_are_bound_to_the_account_of_the_pods(values: str, account: str) -> None:
    found = objects(values=values)
    bindings = [one for name, one in found.items() if "RoleBinding/" in name]

    assert found["Deployment/rlfleet"]["spec"]["template"]["spec"]["serviceAccountName"] == account
    assert [one["subjects"][0]["name"] for one in bindings] == [account, account]
    assert (f"ServiceAccount/{account}" in found) == ("create" not in values)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("operator", "mirror.example/operator"),
        ("rl/operator", "mirror.example/rl/operator"),
        ("ghcr.io/rl/operator", "mirror.example/rl/operator"),
        ("localhost/operator", "mirror.example/operator"),
        ("registry:5000/rl/operator", "mirror.example/rl/operator"),
    ],
)
def test_the_registry_of_all_charts_replaces_an_image_s_own(image: str, expected: str) -> None:
    words = ("--set=global.imageRegistry=mirror.example/", f"--set=image.repository={image}")
    (container,) = pod(*words, f"--set=worker.image={image}@{DIGEST}")["spec"]["containers"]
    worker = next(one for one in container["env"] if one["name"] == "RLFLEET_WORKER_IMAGE")

    assert container["image"] == f"{expected}:{VERSION}"
    assert worker["value"] == f"{expected}@{DIGEST}"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ((), "image.repository and worker.image not set"),
        (IMAGES[:1], "): worker.image not set"),
        (IMAGES[1:], "): image.repository not set"),
    ],
)
def test_without_images_helm_says_how_to_make_and_name_them(
    given: tuple[str, ...], missing: str
) -> None:
    told = refusal(*given)

    assert missing in told
    assert f"docker build -f Dockerfile.worker -t REGISTRY/worker:{VERSION} ." in told
    assert "--set image.repository=REGISTRY/operator --set worker.image=" in told


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            "operator: {metricsPort: 9000, fleetsPort: 9000}",
            "operator.metricsPort and operator.fleetsPort are both 9000",
        ),
        (
            "extraEnv: [{name: RLFLEET_POLL_SECONDS, value: '1'}]",
            "extraEnv[0].name: the chart sets RLFLEET_POLL_SECONDS; set its value instead",
        ),
        (
            "extraEnv: [{name: RLFLEET_LEASE_NAME, value: mine}]",
            "extraEnv[0].name: the chart sets RLFLEET_LEASE_NAME; set fullnameOverride instead",
        ),
        ("rbac: null", "use --reset-then-reuse-values instead of --reuse-values"),
        ("operator: null", "the value operator is missing: null removed it"),
        ("operator: {metricsPort: null}", "the value operator.metricsPort is missing"),
        ("metrics: {rules: null}", "the value metrics.rules is missing"),
        ("networkPolicy: {enabled: true, trainers: null}", "networkPolicy.trainers is missing"),
        ("podLabels: null", "the value podLabels is missing"),
        ("serviceAccount: {create: null}", "the value serviceAccount.create is missing"),
        ("image: {digest: 'sha256:1'}", "'sha256:1' does not match pattern"),
        ("image: {tag: 1}", "got number, want string"),
        ("replica: 3", "additional properties 'replica' not allowed"),
        ("networkPolicy: {samplers: [{}]}", "minProperties: got 0, want 1"),
        ("networkPolicy: {samplers: [{podselector: {}}]}", "'podselector' not allowed"),
        ("operator: {adminPort: 80}", "minimum: got 80, want 1,024"),
        ("hostNetwork: true", "additional properties 'hostNetwork' not allowed"),
        ("enabled: false", "enabled is false, which is for a chart around this one"),
        ("enabled: 1", "got number, want boolean"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(values: str, message: str) -> None:
    assert message in refusal(*IMAGES, values=values)


@pytest.mark.parametrize(("enabled", "deployments"), [("true", 1), ("false", 0)])
def test_a_chart_around_this_one_takes_it_or_not(
    tmp_path: Path, enabled: str, deployments: int
) -> None:
    dependency = {"name": "rlfleet", "version": "*", "condition": "rlfleet.enabled"}
    around = {"apiVersion": "v2", "name": "all", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(around))
    shutil.copytree(CHART, tmp_path / "charts" / "rlfleet")
    (tmp_path / "templates").mkdir()
    values = f"""
    global: {{storageClass: fast, imageRegistry: null}}
    rlfleet:
      enabled: {enabled}
      image: {{repository: registry.example/operator}}
      worker: {{image: "w/worker:1"}}
    """

    done = helm(values=values, chart=tmp_path)

    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "Deployment"]
    assert len(found) == deployments
    # On its pod too: doctor reads there which release an upgrade would replace.
    for metadata in (
        m for one in found for m in (one["metadata"], one["spec"]["template"]["metadata"])
    ):
        assert metadata["annotations"] == {"rlfleet.dev/subchart": "true"}


def test_the_values_of_0_1_0_still_mean_what_they_meant() -> None:
    """Each value of the first chart, as its values.yaml and docs/how-to/install.md had them."""
    values = """
    image: {repository: registry/operator, tag: 0.1.0, pullPolicy: IfNotPresent}
    replicas: 2
    worker: {image: 'registry/worker:0.1.0'}
    imagePullSecrets: [{name: pull}]
    namespaces: [rl]
    crds: {enabled: true}
    operator: {logLevel: INFO, pollSeconds: 10, sidecarConcurrency: 128, metricsPort: 8081,
      fleetsPort: 8082}
    metrics: {service: true, rules: {labels: {release: monitoring}}}
    resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {memory: 512Mi}}
    serviceAccount: {name: '', annotations: {}}
    podAnnotations: {installed-by: demo}
    nodeSelector: {pool: cpu}
    tolerations: [{operator: Exists}]
    affinity: {}
    """
    found = objects("--set=image.repository=registry/operator", values=values)
    deployment = found["Deployment/rlfleet"]["spec"]
    spec = deployment["template"]["spec"]

    # A selector cannot change, and whatever finds the pods by these labels must find them still.
    assert deployment["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "rlfleet-operator",
        "app.kubernetes.io/instance": "rlfleet",
    }
    assert spec["containers"][0]["image"] == "registry/operator:0.1.0"
    assert spec["serviceAccountName"] == "rlfleet"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert {"Service/rlfleet", "Service/rlfleet-metrics", "Role/rlfleet"} <= found.keys()


def test_monitors_have_the_interval_and_labels_of_the_values() -> None:
    values = """
    commonLabels: {release: all}
    metrics: {podMonitors: {enabled: true, interval: 5s, labels: {release: prometheus}}}
    """
    found = objects(values=values)

    for name in ("PodMonitor/rlfleet-operator", "PodMonitor/rlfleet-engines"):
        assert found[name]["metadata"]["labels"]["release"] == "prometheus"
        assert [one["interval"] for one in found[name]["spec"]["podMetricsEndpoints"]] == ["5s"]
