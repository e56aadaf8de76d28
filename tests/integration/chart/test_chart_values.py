"""What each value of the chart changes, and that it changes nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dev.docs import chart
from rlfleet_operator.settings import OperatorSettings
from tests.integration.chart.rendering import VERSION, changes, pod

DIGEST = "sha256:" + 64 * "a"
SPEC = "Deployment/rlfleet spec"
POD = f"{SPEC}.template.spec"
CONTAINER = f"{POD}.containers[operator]"
ENV = f"{CONTAINER}.env"
ACCOUNT = "ServiceAccount/rlfleet"
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to"

ONE_FIELD: list[tuple[str, str, Any]] = [
    (f"image: {{digest: '{DIGEST}'}}", f"{CONTAINER}.image", f"registry.example/operator@{DIGEST}"),
    ("image: {tag: v2}", f"{CONTAINER}.image", "registry.example/operator:v2"),
    ("image: {pullPolicy: Always}", f"{CONTAINER}.imagePullPolicy", "Always"),
    ("replicas: 3", f"{SPEC}.replicas", 3),
    ("revisionHistoryLimit: 2", f"{SPEC}.revisionHistoryLimit", 2),
    ("priorityClassName: high", f"{POD}.priorityClassName", "high"),
    ("nodeSelector: {pool: cpu}", f"{POD}.nodeSelector.pool", "cpu"),
    ("podLabels: {team: rl}", f"{SPEC}.template.metadata.labels.team", "rl"),
    ("podAnnotations: {team: rl}", f"{SPEC}.template.metadata.annotations.team", "rl"),
    ("imagePullSecrets: [mine]", f"{POD}.imagePullSecrets[mine].name", "mine"),
    ("imagePullSecrets: [{name: mine}]", f"{POD}.imagePullSecrets[mine].name", "mine"),
    ("global: {imagePullSecrets: [mine]}", f"{POD}.imagePullSecrets[mine].name", "mine"),
    ("podSecurityContext: {runAsUser: 1000}", f"{POD}.securityContext.runAsUser", 1000),
    ("podSecurityContext: {runAsUser: null}", f"{POD}.securityContext.runAsUser", None),
    ("podSecurityContext: {fsGroup: 1000}", f"{POD}.securityContext.fsGroup", 1000),
    (
        "securityContext: {readOnlyRootFilesystem: false}",
        f"{CONTAINER}.securityContext.readOnlyRootFilesystem",
        False,
    ),
    ("resources: {limits: {memory: 1Gi}}", f"{CONTAINER}.resources.limits.memory", "1Gi"),
    ("podDisruptionBudget: {enabled: false}", "PodDisruptionBudget/rlfleet", None),
    (
        "podDisruptionBudget: {maxUnavailable: 50%}",
        "PodDisruptionBudget/rlfleet spec.maxUnavailable",
        "50%",
    ),
    (
        "serviceAccount: {annotations: {role: r}}",
        f"{ACCOUNT} metadata.annotations.role",
        "r",
    ),
    (
        "networkPolicy: {enabled: true}",
        "NetworkPolicy/rlfleet",
        "made",
    ),
    ("operator: {logLevel: DEBUG}", f"{ENV}[RLFLEET_LOG_LEVEL].value", "DEBUG"),
    ("operator: {pollSeconds: 0.5}", f"{ENV}[RLFLEET_POLL_SECONDS].value", "0.5"),
    (
        "operator: {sidecarConcurrency: 4}",
        f"{ENV}[RLFLEET_SIDECAR_CONCURRENCY].value",
        "4",
    ),
    (
        "operator: {watchSilenceSeconds: 300}",
        f"{ENV}[RLFLEET_WATCH_SILENCE_SECONDS].value",
        "300",
    ),
    ("operator: {adminPort: 9090}", f"{ENV}[RLFLEET_ADMIN_PORT].value", "9090"),
]

ELSEWHERE = {
    # Every test needs these, or renders without them.
    "crds.enabled",
    "image.repository",
    "worker.image",
    # test_chart_objects.py
    "enabled",
    "commonLabels",
    "fullnameOverride",
    "nameOverride",
    "serviceAccount.create",
    "serviceAccount.name",
    # test_network_policies.py
    *(f"networkPolicy.{name}" for name in ("namespaces", "trainers", "samplers", "prometheus")),
    *(f"networkPolicy.{name}Egress" for name in ("operator", "worker")),
    # metrics/test_monitoring_chart.py, metrics/test_service_monitors.py, test_chart_objects.py
    "metrics.service",
    *(
        f"metrics.{kind}.{name}"
        for kind in ("podMonitors", "serviceMonitors")
        for name in ("enabled", "interval", "labels")
    ),
    *(
        f"metrics.{kind}.{name}"
        for kind in ("rules", "dashboard")
        for name in ("enabled", "labels")
    ),
    "metrics.rules.noNewVersionSeconds",
}


@pytest.mark.parametrize(("values", "field", "now"), ONE_FIELD, ids=[one[0] for one in ONE_FIELD])
def test_a_value_changes_its_field_only(values: str, field: str, now: Any) -> None:
    assert changes(values) == {field: now}


TLS_DIR = "/var/run/rlfleet/tls"

MORE: list[tuple[str, dict[str, Any]]] = [
    (
        "extraEnv: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}]",
        {
            f"{ENV}[HTTPS_PROXY].name": "HTTPS_PROXY",
            f"{ENV}[HTTPS_PROXY].value": "http://proxy:3128",
        },
    ),
    (
        "operator: {metricsPort: 9081}",
        {
            f"{ENV}[RLFLEET_METRICS_PORT].value": "9081",
            f"{CONTAINER}.ports[metrics].containerPort": 9081,
        },
    ),
    (
        "operator: {fleetsPort: 9082}",
        {
            f"{ENV}[RLFLEET_FLEETS_PORT].value": "9082",
            f"{CONTAINER}.ports[fleets].containerPort": 9082,
            "Service/rlfleet spec.ports[fleets].port": 9082,
        },
    ),
    (
        "operator: {fleetsPort: 0}",
        {
            f"{ENV}[RLFLEET_FLEETS_PORT].value": "0",
            **{
                f"{CONTAINER}.ports[fleets].{key}": None
                for key in ("name", "containerPort", "protocol")
            },
            "Service/rlfleet": None,
        },
    ),
    (
        "operator: {fleetsPort: 0, fleetsTLS: {issuer: {name: internal}}}",
        {
            f"{ENV}[RLFLEET_FLEETS_PORT].value": "0",
            **{
                f"{CONTAINER}.ports[fleets].{key}": None
                for key in ("name", "containerPort", "protocol")
            },
            "Service/rlfleet": None,
        },
    ),
    (
        "operator: {fleetsTLS: {secretName: mine}}",
        {
            f"{ENV}[RLFLEET_FLEETS_TLS_DIR].value": TLS_DIR,
            f"{CONTAINER}.volumeMounts[tls].name": "tls",
            f"{CONTAINER}.volumeMounts[tls].mountPath": TLS_DIR,
            f"{CONTAINER}.volumeMounts[tls].readOnly": True,
            f"{POD}.volumes[tls].name": "tls",
            f"{POD}.volumes[tls].secret.secretName": "mine",
        },
    ),
    (
        "operator: {fleetsTLS: {issuer: {name: internal}}}",
        {
            f"{ENV}[RLFLEET_FLEETS_TLS_DIR].value": TLS_DIR,
            f"{CONTAINER}.volumeMounts[tls].name": "tls",
            f"{CONTAINER}.volumeMounts[tls].mountPath": TLS_DIR,
            f"{CONTAINER}.volumeMounts[tls].readOnly": True,
            f"{POD}.volumes[tls].name": "tls",
            f"{POD}.volumes[tls].secret.secretName": "rlfleet-tls",
            "Certificate/rlfleet-tls": "made",
        },
    ),
    ("replicas: 1", {f"{SPEC}.replicas": 1, "PodDisruptionBudget/rlfleet": None}),
    (
        "global: {imageRegistry: mirror.example/rl}",
        {
            f"{CONTAINER}.image": f"mirror.example/rl/operator:{VERSION}",
            f"{ENV}[RLFLEET_WORKER_IMAGE].value": "mirror.example/rl/w/worker:1",
        },
    ),
    (
        "rbac: {create: false}",
        dict.fromkeys(
            (
                "ClusterRole/rlfleet",
                "ClusterRoleBinding/rlfleet",
                "Role/rlfleet-leader",
                "RoleBinding/rlfleet-leader",
            )
        ),
    ),
    (
        "rbac: {trainerPolicy: false}",
        dict.fromkeys(
            (
                "ValidatingAdmissionPolicy/rlfleet-trainer",
                "ValidatingAdmissionPolicyBinding/rlfleet-trainer",
            )
        ),
    ),
    (
        "rbac: {aggregate: false}",
        {
            f"ClusterRole/rlfleet-{role} metadata.labels.{AGGREGATE}-{to}": None
            for role, to in (("viewer", "view"), ("owner", "edit"), ("owner", "admin"))
        },
    ),
    (
        "rbac: {userRoles: false}",
        dict.fromkeys(
            (
                "ClusterRole/rlfleet-viewer",
                "ClusterRole/rlfleet-trainer",
                "ClusterRole/rlfleet-owner",
                "ValidatingAdmissionPolicy/rlfleet-trainer",
                "ValidatingAdmissionPolicyBinding/rlfleet-trainer",
            )
        ),
    ),
    (
        "affinity: {nodeAffinity: {required: x}}",
        {
            f"{POD}.affinity.nodeAffinity.required": "x",
            **dict.fromkeys(
                f"{POD}.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].{path}"
                for path in (
                    "weight",
                    "podAffinityTerm.topologyKey",
                    "podAffinityTerm.labelSelector.matchLabels.app.kubernetes.io/name",
                    "podAffinityTerm.labelSelector.matchLabels.app.kubernetes.io/instance",
                )
            ),
        },
    ),
    (
        "namespaces: [rl]",
        {
            f"{ENV}[RLFLEET_NAMESPACES].value": "rl",
            "ClusterRole/rlfleet": None,
            "ClusterRoleBinding/rlfleet": None,
            "Role/rlfleet": "made",
            "RoleBinding/rlfleet": "made",
        },
    ),
    (
        "tolerations: [{operator: Exists}]",
        {f"{POD}.tolerations[0].operator": "Exists"},
    ),
    (
        "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone}]",
        {
            f"{POD}.topologySpreadConstraints[0].{path}": value
            for path, value in (
                ("maxSkew", 1),
                ("topologyKey", "zone"),
                ("labelSelector.matchLabels.app.kubernetes.io/name", "rlfleet-operator"),
                ("labelSelector.matchLabels.app.kubernetes.io/instance", "rlfleet"),
            )
        },
    ),
    (
        "topologySpreadConstraints: [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}}]",
        {
            f"{POD}.topologySpreadConstraints[0].{path}": value
            for path, value in (
                ("topologyKey", "zone"),
                ("labelSelector.matchLabels.a", "b"),
            )
        },
    ),
]


@pytest.mark.parametrize(("values", "wanted"), MORE, ids=[one[0] for one in MORE])
def test_a_value_changes_its_fields_only(values: str, wanted: dict[str, Any]) -> None:
    assert changes(values) == wanted


def test_every_value_is_tried() -> None:
    """By the tables above, or by a test of its own."""
    texts = [text for text, *_ in ONE_FIELD] + [text for text, _ in MORE]
    tried = {path for text in texts for path in _paths(yaml.safe_load(text))}
    values = {row.path for row in chart.values() if "properties" not in row.schema}

    assert {path for path in values if not any(f"{t}.".startswith(f"{path}.") for t in tried)} == (
        ELSEWHERE
    )


def _paths(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        where = f"{path}.{key}".strip(".")
        yield where
        if isinstance(value, dict):
            yield from _paths(value, where)


def test_every_setting_of_the_operator_can_be_set() -> None:
    (container,) = pod()["spec"]["containers"]
    names = {one["name"] for one in container["env"]}

    settings = {f"RLFLEET_{field.upper()}" for field in OperatorSettings.model_fields}
    # The Lease is in the pod's own namespace.
    assert settings - names == {"RLFLEET_LEASE_NAMESPACE"}
    assert names <= settings


def test_every_default_is_the_operator_s_own() -> None:
    """But for those that say that this is a cluster: the Lease and the fleet API."""
    (container,) = pod()["spec"]["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    settings = OperatorSettings.load({**env, "RLFLEET_LEASE_NAMESPACE": "rlfleet"})
    own = OperatorSettings(worker_image=settings.worker_image)

    differing = {name for name, value in settings if value != getattr(own, name)}
    assert differing == {"fleets_port", "lease_name", "lease_namespace"}
