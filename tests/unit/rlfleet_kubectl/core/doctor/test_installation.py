"""Defects of an installation that `doctor` finds: definition, operator, Lease, rights."""

from typing import Any

import pytest

from rlfleet_kubectl.core.doctor import installation
from rlfleet_kubectl.core.doctor.finding import Severity
from tests.unit.rlfleet_kubectl.clusters import Change, Cluster
from tests.unit.rlfleet_kubectl.defects import (
    HTTP,
    Defect,
    both,
    demand_found,
    demand_nothing,
    policed,
    put,
    replicas,
    setting,
)

E = Severity.ERROR
W = Severity.WARNING
U = Severity.UNKNOWN
UPGRADE = "helm upgrade plugin charts/rlfleet -n plugin-system --reset-then-reuse-values"


def lease(**spec: Any) -> Change:
    return lambda cluster: cluster.operator["leases"][0]["spec"].update(spec)


def without_field(cluster: Cluster) -> None:
    schema = cluster.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["weights"]["properties"]["sharing"]


def with_field(cluster: Cluster) -> None:
    schema = cluster.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["novel"] = {"type": "string"}


SHOWN: list[Defect] = [
    ("no definition", put("definition", None), E, "DefinitionMissing", "no such", "helm upgrade"),
    ("an old one", without_field, W, "DefinitionOlder", "spec.weights.sharing", UPGRADE),
    ("a new one", with_field, W, "DefinitionNewer", "spec.novel", "same release"),
    (
        "no operator",
        lambda c: c.operator.update(deployments=[], pods=[]),
        E,
        "OperatorMissing",
        "no Deployment",
        "--operator-namespace",
    ),
    (
        "an operator of no replicas",
        lambda c: c.deployment["spec"].update(replicas=0),
        E,
        "OperatorScaledToZero",
        "got 0 replicas",
        "scale deploy plugin",
    ),
    (
        "none ready",
        replicas(readyReplicas=0),
        E,
        "OperatorNotReady",
        "0 of 1",
        "logs deploy/plugin",
    ),
    (
        "a leader that Kubernetes calls not ready",
        replicas(readyReplicas=0),
        E,
        "OperatorNotReady",
        "fleet API and metrics are not reached",
        "logs deploy/plugin",
    ),
    (
        "none ready, and no leader",
        both(replicas(readyReplicas=0), lease(renewTime="2026-11-25T02:50:00.000000Z")),
        E,
        "OperatorNotReady",
        "no fleet is reconciled",
        "logs deploy/plugin",
    ),
    (
        "one of two ready",
        lambda c: c.deployment["spec"].update(replicas=2),
        W,
        "OperatorNotReady",
        "1 of 2",
        "logs deploy/plugin",
    ),
    (
        "its pod is rejected",
        lambda c: c.deployment["status"]["conditions"].append(
            {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}
        ),
        E,
        "OperatorPodRejected",
        "exceeded quota",
        "quota",
    ),
    (
        "another release",
        lambda c: c.deployment["metadata"]["labels"].update({"app.kubernetes.io/version": "9.9.9"}),
        W,
        "OperatorRelease",
        "got release 9.9.9 of the operator, expected 0.1.0",
        "one release",
    ),
    ("no Lease", lambda c: c.operator["leases"].clear(), E, "NoLeader", "no Lease", "logs"),
    ("no holder", lease(holderIdentity=""), E, "NoLeader", "no holder", "logs deploy/plugin"),
    (
        "an old Lease",
        lease(renewTime="2026-11-25T02:50:00.000000Z"),
        E,
        "NoLeader",
        "renewed it 2m ago, expected within 40 s",
        "logs deploy/plugin",
    ),
    (
        "a namespace that is not driven",
        setting("RLFLEET_NAMESPACES", "rl, other"),
        E,
        "NamespaceNotDriven",
        "drives rl, other",
        f"{UPGRADE} --set 'namespaces={{rl,other,plugin}}'",
    ),
    (
        "a user without pods/proxy",
        lambda c: c.denied.add("get pods/proxy"),
        W,
        "UserAccess",
        "you may not get pods/proxy (for top)",
        "can-i get pods/proxy -n plugin",
    ),
    (
        "a user without fleets",
        lambda c: c.denied.add("list rlinferencefleets.rlfleet.dev"),
        E,
        "UserAccess",
        "may not list rlinferencefleets",
        "can-i",
    ),
    (
        "an operator without Secrets",
        lambda c: c.operator_denied.update({"get secrets", "create pods"}),
        E,
        "OperatorAccess",
        "may not create pods; get secrets; expected",
        UPGRADE,
    ),
    (
        "what may not be read",
        put("unread", {"pods": "Forbidden: x", "events": "y"}),
        U,
        "NotReadable",
        "cannot read events, pods: y",
        "can-i list events",
    ),
]
HARMLESS: list[tuple[str, Change]] = [
    (
        "a definition that may not be read",
        both(put("definition", None), put("is_definition_known", value=False)),
    ),
    ("an operator of all namespaces", setting("RLFLEET_NAMESPACES", "")),
    ("one of several namespaces", setting("RLFLEET_NAMESPACES", "rl, plugin")),
    ("a clock that is 20 s ahead", lease(renewTime="2026-11-25T02:52:10.000000Z")),
    ("a Lease that may not be read", lambda c: c.operator.pop("leases")),
]


@pytest.mark.parametrize("defect", SHOWN, ids=[one[0] for one in SHOWN])
def test_a_defect_is_found(defect: Defect) -> None:
    demand_found(defect)


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_looks_like_a_defect_is_not_shown(change: Change) -> None:
    demand_nothing(change)


def test_rights_are_not_asked_for_where_the_operator_drives_nothing() -> None:
    cluster = Cluster()
    setting("RLFLEET_NAMESPACES", "rl")(cluster)
    cluster.operator_denied.add("create pods")

    assert [one.check for one in cluster.diagnosed()] == ["NamespaceNotDriven"]


def second(cluster: Cluster, names: str, namespace: str = "plugin-system") -> Any:
    """Return another operator's Deployment, of an account of its own."""
    other = Cluster()
    setting("RLFLEET_NAMESPACES", names)(other)
    other.deployment["metadata"] |= {"name": "second", "namespace": namespace}
    other.deployment["metadata"]["annotations"]["meta.helm.sh/release-name"] = "other"
    other.deployment["spec"]["template"]["spec"]["serviceAccountName"] = "second"
    setting("RLFLEET_LEASE_NAME", cluster.operator["leases"][0]["metadata"]["name"])(other)
    return other.deployment


def test_a_namespace_is_driven_by_one_of_two_operators_in_one_namespace() -> None:
    cluster = Cluster()
    setting("RLFLEET_NAMESPACES", "rl")(cluster)
    cluster.operator["deployments"].append(second(cluster, "plugin"))
    assert cluster.diagnosed() == []

    cluster.operator_denied.add("create pods")
    (one,) = cluster.diagnosed()
    assert one.check == "OperatorAccess"
    assert one.found.startswith("system:serviceaccount:plugin-system:second may not create pods")
    assert one.mend.startswith("helm upgrade other charts/rlfleet -n plugin-system ")


def test_a_namespace_is_driven_by_an_operator_in_another_namespace() -> None:
    cluster = Cluster()
    setting("RLFLEET_NAMESPACES", "rl")(cluster)
    assert [one.check for one in cluster.diagnosed()] == ["NamespaceNotDriven"]

    cluster.elsewhere.append(second(cluster, "plugin", "elsewhere"))
    # Which pods its policies must let through is not known.
    policed("space", ingress=[HTTP])(cluster)
    assert cluster.diagnosed() == []


@pytest.mark.parametrize("names", ["", "plugin"])
def test_a_namespace_that_two_installations_drive_is_an_error(names: str) -> None:
    cluster = Cluster()
    # Its own Deployment is among those of all namespaces.
    cluster.elsewhere += [cluster.deployment, second(cluster, names, "elsewhere")]

    (one,) = cluster.diagnosed()
    assert one.check == "SeveralOperators"
    assert "deployment elsewhere/second and deployment plugin-system/" in one.found


@pytest.mark.parametrize(
    ("driven", "expected"),
    [
        ({"a": "rl", "b": "plugin"}, "b"),
        ({"a": "rl", "b": ""}, "b"),
        ({"a": "", "b": "plugin"}, "b"),
        ({"a": "rl", "b": "other"}, "a"),
    ],
)
def test_of_several_operators_that_of_the_namespace_is_looked_at(
    driven: dict[str, str], expected: str
) -> None:
    found = []
    for place, names in driven.items():
        cluster = Cluster()
        setting("RLFLEET_NAMESPACES", names)(cluster)
        cluster.deployment["metadata"]["namespace"] = place
        found.append(cluster.deployment)

    assert installation.driving(found, "plugin") == expected
