"""Which peers the chart's NetworkPolicies let in, and where they let pods go.

`make network-policies` shows the same with a plugin that enforces them; here the rules are read as
Kubernetes defines them.
"""

from typing import Any

import pytest
import yaml

from rlfleet_contract import paths
from rlfleet_operator.core.manifests import pod_manifest
from tests import fleets
from tests.integration.chart.rendering import Object, objects, pod, rendered

ON = "networkPolicy: {enabled: true}"
TRAINER, SAMPLER = {"rlfleet.dev/trainer": "true"}, {"rlfleet.dev/sampler": "true"}
WORKER = {"app.kubernetes.io/name": "rlfleet", "app.kubernetes.io/component": "worker"}
OPERATOR = {"app.kubernetes.io/name": "rlfleet-operator", "app.kubernetes.io/instance": "rlfleet"}
SIDECAR, ENGINE, FLEETS, METRICS = paths.ADMIN_PORT, paths.ENGINE_PORT, 8082, 8081


@pytest.mark.parametrize(
    ("namespace", "labels", "ports"),
    [
        ("rl", {}, set()),
        ("rl", TRAINER, {SIDECAR}),
        ("other", TRAINER, set()),
        ("rl", SAMPLER, {ENGINE}),
        ("other", SAMPLER, set()),
        ("rl", TRAINER | SAMPLER, {SIDECAR, ENGINE}),
        ("rl", WORKER, {SIDECAR}),
        ("other", WORKER, set()),
        ("system", OPERATOR, {SIDECAR, ENGINE}),
        ("rl", OPERATOR, set()),
        ("system", {}, set()),
        ("monitoring", {"app": "prometheus"}, {ENGINE}),
    ],
)
def test_a_worker_lets_in(namespace: str, labels: dict[str, str], ports: set[int]) -> None:
    policy = _policies("--set=namespaces={rl}")["rl"]

    assert _let_in(policy, namespace, labels) == ports


@pytest.mark.parametrize(
    ("namespace", "labels", "ports"),
    [
        ("rl", {}, set()),
        ("rl", TRAINER, {FLEETS}),
        ("other", TRAINER, set()),
        ("system", TRAINER, set()),
        ("rl", WORKER, set()),
        ("system", {}, set()),
        ("monitoring", {}, {METRICS}),
    ],
)
def test_the_operator_lets_in(namespace: str, labels: dict[str, str], ports: set[int]) -> None:
    policy = _policies("--set=namespaces={rl}")["system"]

    assert _let_in(policy, namespace, labels) == ports


def test_an_operator_of_all_namespaces_lets_in_trainers_of_all() -> None:
    policies = _policies()

    assert policies.keys() == {"system"}
    assert _let_in(policies["system"], "anywhere", TRAINER) == {FLEETS}


def test_workers_get_policies_in_the_named_namespaces() -> None:
    assert _policies("--set=networkPolicy.namespaces={a,b}").keys() == {"system", "a", "b"}
    words = ("--set=networkPolicy.namespaces={a}", "--set=namespaces={a,b}")
    assert _policies(*words).keys() == {"system", "a"}


def test_policies_select_the_pods_that_chart_and_operator_make() -> None:
    policies = _policies("--set=namespaces={rl}")
    worker = pod_manifest.pod(fleets.fleet(), 0, pod_manifest.Defaults("worker:1"))["metadata"]
    operator = pod()["metadata"]

    assert _selects(policies["rl"]["podSelector"], worker["labels"])
    assert not _selects(policies["rl"]["podSelector"], operator["labels"])
    assert _selects(policies["system"]["podSelector"], operator["labels"])
    assert not _selects(policies["system"]["podSelector"], worker["labels"])


def test_another_port_of_sidecars_and_operator_is_let_in() -> None:
    words = ("--set=operator.adminPort=9090", "--set=operator.fleetsPort=9082")
    policies = _policies("--set=namespaces={rl}", *words)

    assert _let_in(policies["rl"], "system", OPERATOR) == {9090, ENGINE}
    assert _let_in(policies["system"], "rl", TRAINER) == {9082}


def test_without_peers_nothing_is_let_in() -> None:
    """A rule with an empty list of peers would let in everything."""
    none = "networkPolicy: {enabled: true, trainers: [], samplers: [], prometheus: []}"
    policies = _policies("--set=namespaces={rl}", values=none)

    assert policies["system"]["ingress"] is None
    assert _let_in(policies["rl"], "system", OPERATOR) == {SIDECAR, ENGINE}
    peers = [one["podSelector"] for rule in policies["rl"]["ingress"] for one in rule["from"]]
    assert all(one in ({"matchLabels": OPERATOR}, {"matchLabels": WORKER}) for one in peers)


def test_pods_go_everywhere_unless_a_value_limits_them() -> None:
    limits = """
    namespaces: [rl]
    networkPolicy:
      enabled: true
      operatorEgress: [{ports: [{port: 443}]}]
      workerEgress: [{ports: [{port: 9000}]}]
    """
    open_ones, limited = _policies("--set=namespaces={rl}"), _policies(values=limits)

    for policy in open_ones.values():
        assert (policy["policyTypes"], "egress" in policy) == (["Ingress"], False)
    for name, workers, port in (("system", {SIDECAR, ENGINE}, 443), ("rl", {SIDECAR}, 9000)):
        assert limited[name]["policyTypes"] == ["Ingress", "Egress"]
        ports = [_ports(rule) for rule in limited[name]["egress"]]
        assert ports == [{53}, workers, {port}]


def test_there_are_none_by_default() -> None:
    assert [name for name in objects() if "NetworkPolicy" in name] == []


def _policies(*words: str, values: str = ON) -> dict[str, Object]:
    """Return the specs of the policies by their namespace."""
    text = rendered("--namespace=system", *words, values=values)
    found = [one for one in yaml.safe_load_all(text) if one and one["kind"] == "NetworkPolicy"]
    return {one["metadata"]["namespace"]: one["spec"] for one in found}


def _let_in(policy: Object, namespace: str, labels: dict[str, str]) -> set[int]:
    """Return the ports that a pod reaches; it may be in the policy's namespace, "rl"."""
    own = "system" if _selects(policy["podSelector"], OPERATOR) else "rl"
    found: set[int] = set()
    for rule in policy["ingress"] or ():
        assert rule["from"], "an empty list lets in everything"
        for peer in rule["from"]:
            of_namespace = peer.get("namespaceSelector")
            name = {"kubernetes.io/metadata.name": namespace}
            is_there = namespace == own if of_namespace is None else _selects(of_namespace, name)
            if is_there and _selects(peer.get("podSelector", {}), labels):
                found |= _ports(rule)
    return found


def _ports(rule: Object) -> set[int]:
    return {one["port"] for one in rule["ports"]}


def _selects(selector: Object, labels: dict[str, Any]) -> bool:
    expressions = selector.get("matchExpressions", ())
    assert {one["operator"] for one in expressions} <= {"In"}
    has_all = selector.get("matchLabels", {}).items() <= labels.items()
    return has_all and all(labels.get(one["key"]) in one["values"] for one in expressions)
