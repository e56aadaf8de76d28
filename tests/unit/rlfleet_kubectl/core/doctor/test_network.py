"""NetworkPolicies that block, and names that others have taken."""

import json

import pytest

from rlfleet_kubectl.core.doctor.finding import Severity
from tests.unit.rlfleet_kubectl.clusters import Change, Cluster
from tests.unit.rlfleet_kubectl.defects import (
    HTTP,
    Defect,
    both,
    demand_found,
    demand_nothing,
    policed,
    setting,
)

E = Severity.ERROR


def taken(kind: str, name: str, owner: str = "other") -> Change:
    def change(cluster: Cluster) -> None:
        owners = [{"kind": "RLInferenceFleet", "name": "other", "uid": owner}]
        metadata = {"name": name, "namespace": "plugin", "ownerReferences": owners}
        cluster.space[kind] = [
            one for one in cluster.space[kind] if one["metadata"]["name"] != name
        ]
        cluster.space[kind].append({"metadata": metadata})

    return change


ADMIN_FROM_OPERATOR = {
    "ports": [{"port": "admin"}],
    "from": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "plugin-system"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "rlfleet-operator"}},
        }
    ],
}


HTTP_FROM_OPERATOR = {**ADMIN_FROM_OPERATOR, "ports": [{"port": "http"}]}


SHOWN: list[Defect] = [
    (
        "a policy that keeps the operator out",
        policed("space", policyTypes=["Ingress"], ingress=[HTTP]),
        E,
        "PolicyBlocksOperator",
        "port 8090: networkpolicy plugin/strict",
        '"name":"qwen-from-operator"',
    ),
    (
        "a policy for another namespace's operator",
        policed(
            "space", ingress=[HTTP, {"ports": [{"port": 8090}], "from": [{"podSelector": {}}]}]
        ),
        E,
        "PolicyBlocksOperator",
        "port 8090",
        '"kubernetes.io/metadata.name":"plugin-system"',
    ),
    (
        "a policy for the default port, which is another",
        both(
            setting("RLFLEET_ADMIN_PORT", "9090"),
            policed("space", ingress=[HTTP, {"ports": [{"port": 8090}]}]),
        ),
        E,
        "PolicyBlocksOperator",
        "port 9090",
        '"port":9090',
    ),
    (
        "a policy that keeps samplers out",
        policed("space", ingress=[ADMIN_FROM_OPERATOR]),
        E,
        "PolicyBlocksSamplers",
        "port 8000",
        '"name":"qwen-from-samplers"',
    ),
    (
        "a policy that lets the operator alone reach the engines",
        policed("space", ingress=[ADMIN_FROM_OPERATOR, HTTP_FROM_OPERATOR]),
        E,
        "PolicyBlocksSamplers",
        "port 8000",
        '"name":"qwen-from-samplers"',
    ),
    (
        "a policy that keeps the operator in",
        policed("operator", policyTypes=["Egress"], egress=[{"ports": [{"port": 443}]}]),
        E,
        "PolicyBlocksOperator",
        "no rule lets the operator send to port 8090",
        '"name":"rlfleet-to-workers"',
    ),
    (
        "a Service of another fleet",
        taken("services", "qwen-workers"),
        E,
        "NameTaken",
        "RLInferenceFleet other",
        "delete service/qwen-workers,",
    ),
    (
        "a pod without an owner",
        taken("pods", "qwen-0"),
        E,
        "NameTaken",
        "fleet plugin/qwen",
        "delete pod/qwen-0,",
    ),
]
HARMLESS: list[tuple[str, Change]] = [
    (
        "a policy for another port of the sidecars",
        both(
            setting("RLFLEET_ADMIN_PORT", "9090"),
            policed("space", ingress=[HTTP, {"ports": [{"port": 9090}]}]),
        ),
    ),
    ("a policy that lets both through", policed("space", ingress=[ADMIN_FROM_OPERATOR, HTTP])),
    (
        "a policy about other pods",
        policed("space", podSelector={"matchLabels": {"app": "x"}}, ingress=[]),
    ),
    (
        "a policy with a range of ports",
        policed("space", ingress=[{"ports": [{"port": 8000, "endPort": 9000}]}]),
    ),
    (
        "a policy that lets the node's network through",
        policed("space", ingress=[HTTP, {"from": [{"ipBlock": {"cidr": "10.244.0.0/16"}}]}]),
    ),
    ("a policy about what workers send", policed("space", policyTypes=["Egress"], egress=[])),
    (
        "an operator that may send to workers",
        policed(
            "operator",
            egress=[
                {
                    "to": [
                        {
                            "namespaceSelector": {},
                            "podSelector": {
                                "matchExpressions": [
                                    {"key": "rlfleet.dev/fleet", "operator": "Exists"}
                                ]
                            },
                        }
                    ]
                }
            ],
        ),
    ),
    ("a Service of another name", taken("services", "other")),
]


@pytest.mark.parametrize("defect", SHOWN, ids=[one[0] for one in SHOWN])
def test_a_defect_is_found(defect: Defect) -> None:
    demand_found(defect)


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_looks_like_a_defect_is_not_shown(change: Change) -> None:
    demand_nothing(change)


POLICIES = [one for one in SHOWN if one[3].startswith("Policy")]


@pytest.mark.parametrize("defect", POLICIES, ids=[one[0] for one in POLICIES])
def test_the_policy_of_a_mend_ends_what_was_found(defect: Defect) -> None:
    cluster = Cluster()
    defect[1](cluster)

    for one in cluster.diagnosed():
        namespace, made = one.mend.split()[2], json.loads(one.mend.split("'")[1])
        made["metadata"]["namespace"] = namespace
        place = {"plugin": cluster.space, "plugin-system": cluster.operator}[namespace]
        place["networkpolicies"].append(made)
    assert cluster.diagnosed() == []


def test_a_mend_that_deletes_names_each_object() -> None:
    cluster = Cluster()
    taken("services", "qwen-workers")(cluster)
    taken("services", "qwen")(cluster)

    (found,) = cluster.diagnosed()
    assert len(found.others) == 1
    assert "delete service/qwen-workers service/qwen," in found.mend
