"""Defects of claims that `doctor` finds."""

import json

import pytest

from rlfleet_kubectl.core.doctor.finding import Severity
from tests.unit.rlfleet_kubectl.clusters import Change, Cluster, event
from tests.unit.rlfleet_kubectl.defects import (
    Defect,
    both,
    demand_found,
    demand_nothing,
    in_fleet,
    unscheduled,
)

E = Severity.ERROR
W = Severity.WARNING


def with_modes(modes: list[str], replicas: int) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.claim["spec"]["accessModes"] = modes
        cluster.fleet["spec"]["replicas"] = replicas
        cluster.space["pods"] = [cluster.pod] * replicas

    return change


def pending_claim(reason: str = "") -> Change:
    def change(cluster: Cluster) -> None:
        cluster.claim["status"]["phase"] = "Pending"
        if reason:
            cluster.space["events"].append(
                event("PersistentVolumeClaim", "checkpoints", reason, "no such class")
            )

    return change


SHOWN: list[Defect] = [
    (
        "no claim",
        lambda c: c.space["persistentvolumeclaims"].clear(),
        E,
        "ClaimMissing",
        "no PersistentVolumeClaim checkpoints, expected the one that spec.model.volume names",
        "kubectl -n plugin apply -f - <<< '{",
    ),
    (
        "a claim that waits",
        pending_claim("ProvisioningFailed"),
        E,
        "ClaimPending",
        "ProvisioningFailed: no such class",
        "describe pvc checkpoints",
    ),
    (
        "a lost claim",
        lambda c: c.claim["status"].update(phase="Lost"),
        E,
        "ClaimLost",
        "Lost",
        "restore",
    ),
    (
        "a claim for one pod",
        with_modes(["ReadWriteOncePod"], 2),
        E,
        "ClaimForOnePod",
        "for 2 workers",
        "ReadOnlyMany",
    ),
    (
        "a claim for one node",
        with_modes(["ReadWriteOnce"], 2),
        W,
        "ClaimForOneNode",
        "ReadWriteOnce for 2",
        "ReadOnlyMany",
    ),
]
HARMLESS: list[tuple[str, Change]] = [
    (
        "a claim that waits for its first pod",
        both(
            pending_claim("WaitForFirstConsumer"),
            lambda c: c.space["pods"].clear(),
            in_fleet("spec.replicas", 0),
        ),
    ),
    ("one worker on a claim for one node", with_modes(["ReadWriteOnce"], 1)),
    ("two workers on a shared claim", with_modes(["ReadWriteOnce", "ReadOnlyMany"], 2)),
]


@pytest.mark.parametrize("defect", SHOWN, ids=[one[0] for one in SHOWN])
def test_a_defect_is_found(defect: Defect) -> None:
    demand_found(defect)


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_looks_like_a_defect_is_not_shown(change: Change) -> None:
    demand_nothing(change)


@pytest.mark.parametrize(("replicas", "mode"), [(1, "ReadWriteOnce"), (2, "ReadWriteMany")])
def test_a_claim_that_is_missing_is_made_for_as_many_pods_as_there_are(
    replicas: int, mode: str
) -> None:
    cluster = Cluster()
    with_modes([], replicas)(cluster)
    cluster.space["persistentvolumeclaims"].clear()

    (one,) = cluster.diagnosed()

    claim = json.loads(one.mend.split("'")[1])
    assert claim["metadata"]["name"] == "checkpoints"
    assert claim["spec"]["accessModes"] == [mode]


def test_two_claims_that_are_missing_have_a_command_each() -> None:
    cluster = Cluster()
    cluster.space["persistentvolumeclaims"].clear()
    volumes = [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in ("a", "b")]
    in_fleet("spec.template.spec", {"volumes": volumes})(cluster)

    missing = [one for one in cluster.diagnosed() if one.check == "ClaimMissing"]

    assert len(missing) == 3
    assert all(one.object.rpartition("/")[2] in one.mend for one in missing)


def test_a_pod_that_waits_for_a_claim_is_not_shown_next_to_the_claim() -> None:
    cluster = Cluster()
    cluster.space["persistentvolumeclaims"].clear()
    unscheduled('0/1 nodes are available: persistentvolumeclaim "checkpoints" not found.')(cluster)

    assert [one.check for one in cluster.diagnosed()] == ["ClaimMissing"]
