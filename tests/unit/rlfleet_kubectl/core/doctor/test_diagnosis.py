"""What `doctor` makes of all findings together."""

from rlfleet_kubectl.core.doctor import finding
from rlfleet_kubectl.core.doctor.finding import Severity
from rlfleet_kubectl.core.doctor.scene import Scene, unreachable
from tests.unit.rlfleet_kubectl.clusters import Cluster
from tests.unit.rlfleet_kubectl.defects import both, ended, waiting

E = Severity.ERROR
W = Severity.WARNING
U = Severity.UNKNOWN


def test_a_mend_that_deletes_is_of_one_namespace() -> None:
    one = finding.error("C", "a/x", "bad", f"kubectl -n a delete pod {finding.EACH}", "x")
    other = finding.error("C", "b/x", "bad", f"kubectl -n b delete pod {finding.EACH}", "x")
    assert [f.mend for f in finding.grouped([one, other])] == [
        "kubectl -n a delete pod x",
        "kubectl -n b delete pod x",
    ]


def test_the_command_for_one_fleet_is_not_given_for_another() -> None:
    paused = [
        finding.warning("RolloutPaused", f"fleet rl/{name}", "waits", f"kubectl rlf resume {name}")
        for name in ("qwen", "llama")
    ]

    assert [f.mend for f in finding.grouped(paused)] == [
        "kubectl rlf resume qwen",
        "kubectl rlf resume llama",
    ]


def test_one_mend_is_not_given_for_what_it_does_not_mend() -> None:
    cluster = Cluster()
    both(ended("sidecar", "OOMKilled", 137), ended("engine", "OOMKilled", 137))(cluster)

    mends = {one.object.split()[-1]: one.mend for one in cluster.diagnosed()}

    assert '"sidecar":{"resources"' in mends["sidecar"]
    assert '"engine":{"resources"' in mends["engine"]


def test_the_log_of_one_worker_stands_for_all_with_the_same_defect() -> None:
    many = [
        finding.error("C", f"pod rl/qwen-{n} container engine", "bad", f"kubectl logs qwen-{n}")
        for n in range(12)
    ]

    (found,) = finding.grouped(many)

    assert (len(found.others), found.mend) == (11, "kubectl logs qwen-0")


def test_nothing_is_wrong_with_a_healthy_fleet() -> None:
    assert Cluster().diagnosed() == []


def test_a_fleet_that_was_not_asked_for_is_not_looked_at() -> None:
    cluster = Cluster()
    cluster.space["persistentvolumeclaims"].clear()

    assert cluster.diagnosed(only="other") == []
    assert [one.check for one in cluster.diagnosed(only="qwen")] == ["ClaimMissing"]


def test_errors_come_first_and_one_defect_of_many_pods_is_one_finding() -> None:
    cluster = Cluster()
    cluster.denied.add("get pods/proxy")
    waiting("engine", "ImagePullBackOff", "not found")(cluster)
    metadata = cluster.pod["metadata"] | {"name": "qwen-1"}
    cluster.space["pods"].append(cluster.pod | {"metadata": metadata})
    cluster.unread["events"] = "Forbidden"

    found = cluster.diagnosed()
    assert [one.severity for one in found] == [E, W, U]
    assert found[0].object == "pod plugin/qwen-0 container engine"
    assert found[0].others == ("pod plugin/qwen-1 container engine",)


def test_nothing_read_is_no_diagnosis_unless_rights_are_missing() -> None:
    refused = "E1125 x\nThe connection to the server 127.0.0.1:1 was refused"
    gone = Scene("rl", unread={"pods": refused})

    assert unreachable([gone]) == "The connection to the server 127.0.0.1:1 was refused"
    assert not unreachable([gone, Scene("rl", {"pods": []})])
    assert not unreachable([Scene("rl", unread={"pods": "Error (Forbidden): pods is forbidden"})])
    assert not unreachable([Scene("rl")])
