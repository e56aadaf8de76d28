"""Defects that a fleet itself reports, of its Secrets and of missing pods."""

import pytest

from rlfleet_contract.worker.report import Progress
from rlfleet_kubectl.core.doctor.finding import Severity
from rlfleet_operator.core.model.worker_phase import awaited_by
from rlfleet_operator.core.model.worker_pod import log_of
from tests.unit.rlfleet_kubectl.clusters import Change, Cluster, condition
from tests.unit.rlfleet_kubectl.defects import (
    Defect,
    both,
    demand_found,
    demand_nothing,
    in_fleet,
    put,
    refused,
)
from tests.unit.rlfleet_view.recordings import HALF_COPIED
from tests.workers import worker as worker_of

E = Severity.ERROR
W = Severity.WARNING
U = Severity.UNKNOWN


def said(kind: str, reason: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["conditions"].append(condition(kind, reason))


def worker(phase: str, message: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["workers"][0].update(
        {"phase": phase, "message": message}
    )


def quota(used: str) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.space["pods"] = []
        found = {"hard": {"pods": "4"}, "used": {"pods": used}}
        cluster.space["resourcequotas"].append({"metadata": {"name": "small"}, "status": found})

    return change


def awaiting(message: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["rollout"].update(
        {"phase": "Preparing", "to": "step-7", "message": message}
    )


def copying() -> Change:
    return lambda cluster: cluster.fleet["status"]["rollout"].update(
        {"phase": "Preparing", "to": "step-7", "copies": HALF_COPIED}
    )


def rolling(phase: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["rollout"].update({"phase": phase})


def canary(promote: str) -> Change:
    """Return a canary's hold, which ends by a person's word or by itself."""

    def change(cluster: Cluster) -> None:
        rolling("CanaryHold")(cluster)
        cluster.fleet["spec"]["rollout"] = {"strategy": "Canary", "canary": {"promote": promote}}

    return change


SHOWN: list[Defect] = [
    (
        "a version whose marker the trainer has not written",
        awaiting("qwen-0 waiting: /data/weights/step-7 has no marker (STABLE or .finished)"),
        W,
        "VersionAwaited",
        "rollout 1 to step-7 for 5m: qwen-0 waiting: /data/weights/step-7 has no marker",
        "(it is rejected after 900 s), or kubectl rlf abort qwen -n plugin",
    ),
    (
        "a spec that is not read",
        in_fleet("metadata.generation", 8),
        E,
        "NotObserved",
        "got status about generation 1, expected 8",
        "get deploy,lease,pods",
    ),
    (
        "a fleet that a finalizer keeps",
        both(
            in_fleet("metadata.generation", 8),
            in_fleet("metadata.deletionTimestamp", "2026-11-25T02:00:00Z"),
            in_fleet("metadata.finalizers", ["example.com/keep"]),
        ),
        W,
        "DeletionHeld",
        "kept by finalizers: example.com/keep",
        "what each finalizer's controller waits for",
    ),
    (
        "a marker that is missing",
        said("Stalled", "CheckpointIncomplete"),
        E,
        "Stalled",
        "Stalled: CheckpointIncomplete",
        "write the marker last",
    ),
    (
        "a version that is not there",
        said("Stalled", "VersionNotFound"),
        E,
        "Stalled",
        "VersionNotFound",
        "fix `weightVersion`",
    ),
    (
        "a pod beyond a LimitRange, which the API server does not name",
        said("Stalled", "ObjectRefused"),
        E,
        "Stalled",
        "ObjectRefused",
        "is of a LimitRange (`kubectl describe limits`)",
    ),
    (
        "requests that wait",
        said("Degraded", "RequestsWaiting"),
        E,
        "Degraded",
        "RequestsWaiting",
        "resume",
    ),
    (
        "stale weights",
        said("Degraded", "StaleServing"),
        W,
        "Degraded",
        "StaleServing",
        "spec.staleness",
    ),
    (
        "a trainer's pause",
        said("Paused", "PausedByTrainer"),
        W,
        "Paused",
        "PausedByTrainer",
        "resume",
    ),
    (
        "an untested vLLM",
        said("EngineUntested", "UntestedRelease"),
        W,
        "EngineUntested",
        "UntestedRelease",
        "self-test",
    ),
    (
        "a version refused a moment ago",
        refused("qwen-0: VersionNotFound: /data/weights/step-9 does not exist"),
        E,
        "VersionRefused",
        "rollout 1 to step-9 is refused",
        "fix `weightVersion`",
    ),
    (
        "a paused rollout",
        rolling("Paused"),
        W,
        "RolloutPaused",
        "spec.rollout.paused",
        "kubectl rlf resume qwen",
    ),
    (
        "a canary",
        canary("Manual"),
        W,
        "CanaryHold",
        "waits: its canaries serve, and rollout.canary.promote is Manual",
        "kubectl rlf promote qwen",
    ),
    (
        "a worker behind a policy",
        worker("Unreachable", "ConnectTimeout to 10.0.0.9:8090"),
        E,
        "WorkerUnreachable",
        "ConnectTimeout",
        "NetworkPolicy",
    ),
    (
        "a sidecar between its restarts",
        worker(
            "Unreachable",
            f"sidecar: restart 4, exit code 1; {log_of('qwen-0', 'sidecar')}; ConnectError",
        ),
        E,
        "WorkerUnreachable",
        "restart 4, exit code 1",
        "kubectl -n plugin logs qwen-0 -c sidecar --previous",
    ),
    (
        "a worker in doubt",
        worker("Quarantined", "ProofFailed"),
        E,
        "WorkerQuarantined",
        "ProofFailed",
        "delete pod qwen-0",
    ),
    ("no token", put("secrets", {}), E, "TokenMissing", "no Secret", "component=operator"),
    (
        "an empty token",
        put("secrets", {"qwen-admin": {"token": 0}}),
        E,
        "TokenEmpty",
        "no value",
        "delete secret qwen-admin",
    ),
    (
        "a token of another key",
        put("secrets", {"qwen-admin": {"tokn": 60}}),
        E,
        "TokenEmpty",
        "key token",
        "delete secret",
    ),
    (
        "Secrets that may not be read",
        put("secrets", None),
        U,
        "TokenUnknown",
        "cannot read Secrets",
        "can-i",
    ),
    (
        "no credentials of the store",
        in_fleet("spec.weights.source", {"credentialsSecret": "bucket"}),
        E,
        "CredentialsMissing",
        "weights.source.credentialsSecret",
        "create secret generic bucket",
    ),
    (
        "no certificate",
        in_fleet("spec.sidecar", {"tlsSecret": "qwen-tls"}),
        E,
        "CertificateMissing",
        "got no Secret, expected tls.crt, tls.key, ca.crt (sidecar.tlsSecret)",
        "create secret generic qwen-tls",
    ),
    (
        "a certificate without its CA",
        both(
            in_fleet("spec.sidecar", {"tlsSecret": "qwen-tls"}),
            put("secrets", {"qwen-admin": {"token": 64}, "qwen-tls": {"tls.crt": 9, "tls.key": 9}}),
        ),
        E,
        "CertificateMissing",
        "got no ca.crt",
        r"""secret qwen-tls -p "{\"data\":{\"ca.crt\":\"$(base64 <ca.crt | tr -d '\n')\"}}""",
    ),
    (
        "no pods",
        lambda c: c.space["pods"].clear(),
        E,
        "PodsMissing",
        "got 0 pods, expected 1",
        "logs qwen",
    ),
    ("a full quota", quota("4"), E, "QuotaExceeded", "small (pods 4 of 4)", "raise the quota"),
]
HARMLESS: list[tuple[str, Change]] = [
    (
        "a fleet of a moment ago",
        both(
            in_fleet("metadata.generation", 8),
            in_fleet("metadata.creationTimestamp", "2026-11-25T02:52:00Z"),
        ),
    ),
    (
        "a token that the operator is about to make",
        both(put("secrets", {}), in_fleet("metadata.creationTimestamp", "2026-11-25T02:52:00Z")),
    ),
    (
        "a condition that does not hold",
        lambda c: c.fleet["status"]["conditions"].append(
            condition("Stalled", "RolloutFailed") | {"status": "False"}
        ),
    ),
    (
        "a spec that was changed a moment ago",
        both(
            in_fleet("metadata.generation", 8),
            in_fleet(
                "metadata.managedFields",
                [
                    {"time": "2026-11-25T02:40:00Z"},
                    {"time": "2026-11-25T02:52:10Z"},
                    {"time": "2026-11-25T02:30:00Z", "subresource": "status"},
                ],
            ),
        ),
    ),
    ("a rollout under way", rolling("Reloading")),
    ("a rollout that copies", copying()),
    ("a worker that reloads", worker("Reloading", "loading step-1")),
    (
        "a quota with room, and a pod",
        lambda c: c.space["resourcequotas"].append(
            {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
        ),
    ),
    ("canaries that wait for holdSeconds", canary("Auto")),
]


@pytest.mark.parametrize("defect", SHOWN, ids=[one[0] for one in SHOWN])
def test_a_defect_is_found(defect: Defect) -> None:
    demand_found(defect)


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_looks_like_a_defect_is_not_shown(change: Change) -> None:
    demand_nothing(change)


def test_a_silent_worker_without_a_message_leaves_no_colon_behind() -> None:
    cluster = Cluster()
    worker("Unreachable", "")(cluster)

    (shown,) = (one for one in cluster.diagnosed() if one.check == "WorkerUnreachable")
    assert shown.found == "the operator gets no answer"
    assert "logs qwen-0 -c sidecar" in shown.mend


def test_pods_that_the_api_server_rejects_are_one_finding() -> None:
    cluster = Cluster()
    both(said("Stalled", "ObjectRefused"), lambda c: c.space["pods"].clear())(cluster)

    assert [one.check for one in cluster.diagnosed()] == ["Stalled"]


def test_what_doctor_takes_for_waiting_is_what_the_operator_writes() -> None:
    seen = Progress(version="step-7", bytes_done=0, bytes_total=0, waiting_for="no marker")
    message = awaited_by(worker_of(0, progress=seen), "step-7")

    cluster = Cluster()
    awaiting(f"qwen-0 {message}")(cluster)
    assert [one.check for one in cluster.diagnosed()] == ["VersionAwaited"]
