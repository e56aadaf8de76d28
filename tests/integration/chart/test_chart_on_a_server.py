"""What a real API server says to the chart: every field known, and every pod restricted."""

import json
import subprocess

import pytest
import yaml

from dev.kubernetes import apiserver
from tests.integration.chart.rendering import CHART, pod, rendered
from tests.integration.conftest import IMAGES, kubectl

pytestmark = pytest.mark.integration

DIGEST = "sha256:" + 64 * "0"
MATRIX = {
    "as it is": "",
    "without the fleet API": "operator: {fleetsPort: 0}",
    "one namespace": "namespaces: [default]",
    "one replica": "{replicas: 1, podDisruptionBudget: {enabled: false}}",
    "network policies": """
        networkPolicy: {enabled: true, namespaces: [default]}""",
    "network policies without peers": """
        namespaces: [default]
        networkPolicy: {enabled: true, trainers: [], samplers: [], prometheus: []}""",
    "network policies with egress": """
        namespaces: [default]
        networkPolicy:
          enabled: true
          trainers: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]
          operatorEgress: [{to: [{ipBlock: {cidr: 10.0.0.1/32}}], ports: [{port: 443}]}]
          workerEgress: [{to: [{ipBlock: {cidr: 10.2.0.0/16}}]}]""",
    "every value of a pod": f"""
        image: {{digest: '{DIGEST}'}}
        global: {{imageRegistry: mirror.example, imagePullSecrets: [one]}}
        imagePullSecrets: [{{name: two}}, one]
        extraEnv:
          - {{name: HTTPS_PROXY, value: 'http://proxy:3128'}}
          - name: NODE
            valueFrom: {{fieldRef: {{fieldPath: spec.nodeName}}}}
        commonLabels: {{team: rl}}
        podLabels: {{team: other, pool: cpu}}
        podAnnotations: {{note: "yes"}}
        priorityClassName: system-cluster-critical
        revisionHistoryLimit: 0
        podDisruptionBudget: {{maxUnavailable: 50%}}
        nodeSelector: {{pool: cpu}}
        tolerations: [{{key: pool, operator: Exists}}]
        topologySpreadConstraints:
          - {{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}}
          - maxSkew: 1
            topologyKey: node
            whenUnsatisfiable: DoNotSchedule
            labelSelector: {{matchLabels: {{pool: cpu}}}}""",
    "the user of the platform": "podSecurityContext: {runAsUser: null, runAsGroup: null}",
    "roles of one's own": """
        rbac: {create: false, userRoles: false}
        serviceAccount: {create: false}""",
    "roles that are not added": "rbac: {aggregate: false, trainerPolicy: false}",
    "a name of one's own": "{nameOverride: weights, metrics: {service: true}}",
    "a dashboard": "metrics: {dashboard: {enabled: true, labels: {team: rl}}, service: true}",
}
OTHERS = {
    "monitors of pods, alerts": """
        namespaces: [default]
        metrics:
          podMonitors: {enabled: true, interval: 1m, labels: {team: rl}}
          rules: {enabled: true, labels: {team: rl}}""",
    "monitors of services": "metrics: {serviceMonitors: {enabled: true, interval: 500ms}}",
    "alerts with a limit": "metrics: {rules: {enabled: true, noNewVersionSeconds: 3600}}",
    "a certificate": "operator: {fleetsTLS: {issuer: {name: internal, kind: ClusterIssuer}}}",
}
"""Objects of other projects, next to the same pods."""
MISSPELLED = {
    "PodMonitor": ("podMonitors", "honorLabels: true", "honourLabels: true"),
    "ServiceMonitor": ("serviceMonitors", "action: keepequal", "action: keep-equal"),
    "PrometheusRule": ("rules", "for: 30m", "for: half an hour"),
}
"""Of each kind: the value that makes it, and a mistake that its definition forbids."""


@pytest.mark.parametrize("values", (MATRIX | OTHERS).values(), ids=(MATRIX | OTHERS).keys())
def test_the_api_server_knows_every_field(plane: apiserver.ControlPlane, values: str) -> None:
    # Not the name of the release that other tests install: apply would warn of its roles.
    text = rendered("--namespace=default", values=values, name="dry")
    words = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")

    done = kubectl(plane, *words, stdin=text, check=False)

    # A warning is a field that has no effect, or one that will go.
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == sum(1 for one in yaml.safe_load_all(text) if one)


@pytest.mark.parametrize("kind", MISSPELLED)
def test_the_prometheus_operator_s_definitions_see_a_mistake(
    plane: apiserver.ControlPlane, kind: str
) -> None:
    value, right, wrong = MISSPELLED[kind]
    text = rendered("--namespace=default", f"--set=metrics.{value}.enabled=true", name="dry")
    ours = [one for one in yaml.safe_load_all(text) if one and one["kind"] == kind]
    words = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")

    def refused(made: str) -> bool:
        return kubectl(plane, *words, stdin=made, check=False).returncode != 0

    made = yaml.safe_dump_all(ours)
    assert right in made
    assert not refused(made)
    assert refused(made.replace(right, wrong))


@pytest.mark.parametrize("release", ["v0.2", "2-rl", "r" * 53, "a." * 26 + "a"])
def test_the_api_server_takes_the_names_of_any_release(
    plane: apiserver.ControlPlane, release: str
) -> None:
    values = "{namespaces: [default], networkPolicy: {enabled: true}, metrics: {service: true}}"
    text = rendered("--namespace=default", values=values, name=release)
    words = ("create", "--dry-run=server", "--validate=strict", "--filename=-")

    done = kubectl(plane, *words, stdin=text, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_api_server_takes_the_example_for_artifact_hub(plane: apiserver.ControlPlane) -> None:
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    (example,) = yaml.safe_load(annotations["artifacthub.io/crdsExamples"])
    words = ("create", "--dry-run=server", "--validate=strict", "--filename=-")

    done = kubectl(plane, *words, stdin=json.dumps(example), check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_pod_security_restricted_admits_the_operator(
    plane: apiserver.ControlPlane, restricted: str, values: str
) -> None:
    done = kubectl(plane, *_creates_pod(restricted), stdin=_pod(values), check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_pod_security_restricted_refuses_what_is_not(
    plane: apiserver.ControlPlane, restricted: str
) -> None:
    values = "securityContext: {capabilities: {drop: []}}"

    done = kubectl(plane, *_creates_pod(restricted), stdin=_pod(values), check=False)

    assert "unrestricted capabilities" in done.stderr


@pytest.fixture
def restricted(plane: apiserver.ControlPlane, namespace: str) -> str:
    """A namespace in which Pod Security admits restricted pods only."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    kubectl(plane, "label", "namespace", namespace, label)
    return namespace


def _creates_pod(namespace: str) -> tuple[str, ...]:
    return ("create", f"--namespace={namespace}", "--dry-run=server", "--filename=-")


def _pod(values: str) -> str:
    """Return the operator's pod by itself; its account need not exist for this."""
    template = pod(values=values)
    spec = {**template["spec"], "serviceAccountName": "default"}
    about = {**template["metadata"], "name": "operator"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})


TWO = "WARNING: no other release may drive fleets of these namespaces"
NOTES = {
    "crds: {enabled: false}": {TWO},
    "{crds: {enabled: false}, networkPolicy: {enabled: true}}": {
        TWO,
        "WARNING: workers have none yet",
    },
    "{crds: {enabled: false}, rbac: {create: false}}": {TWO, "WARNING: rbac.create is off"},
    "crds: {enabled: true}": set(),
}


@pytest.mark.parametrize(("values", "warnings"), NOTES.items(), ids=NOTES.keys())
def test_helm_warns_of_what_the_user_must_see_to(
    plane: apiserver.ControlPlane, values: str, warnings: set[str]
) -> None:
    kubeconfig = f"--kubeconfig={plane.kubeconfig}"
    # The definition of the tests' server belongs to no release.
    words = ("install", "dry", str(CHART), "--dry-run=client", "--take-ownership", "--values=-")

    done = subprocess.run(
        ["helm", *words, *IMAGES, kubeconfig],
        input=values,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    found = [line for line in done.stdout.splitlines() if line.startswith("WARNING")]
    assert len(found) == len(warnings)
    assert all(any(line.startswith(one) for line in found) for one in warnings)
