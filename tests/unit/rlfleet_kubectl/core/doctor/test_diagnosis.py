"""Each finding of `doctor`: a defect that shows it, and what looks like one and is none."""

from typing import Any

import pytest

from rlfleet_contract.worker.report import Progress
from rlfleet_kubectl.core.doctor import finding, installation, pods
from rlfleet_kubectl.core.doctor.finding import Severity
from rlfleet_kubectl.core.doctor.scene import Scene, unreachable
from rlfleet_operator.core.model.worker_phase import awaited_by
from tests.unit.rlfleet_kubectl.clusters import (
    NAMESPACE,
    Change,
    Cluster,
    condition,
    event,
    policy,
)
from tests.unit.rlfleet_view.recordings import HALF_COPIED
from tests.workers import worker as worker_of

E, W, U = Severity.ERROR, Severity.WARNING, Severity.UNKNOWN
NODE = "node(s)"
PATCH = "kubectl -n plugin patch rlf qwen --type=merge -p '"


def waiting(container: str, reason: str, message: str = "") -> Change:
    """Have a container wait."""

    def change(cluster: Cluster) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        cluster.container(container).update({"state": state, "ready": False})

    return change


_AT = "2026-11-25T02:51:00Z"


def ended(container: str, reason: str, code: int, at: str = _AT) -> Change:
    """Have a container run again after it ended."""

    def change(cluster: Cluster) -> None:
        last = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at}}
        cluster.container(container).update({"lastState": last, "restartCount": 3})

    return change


def readiness(container: str, *, is_ready: bool) -> Change:
    return lambda cluster: cluster.container(container).update({"ready": is_ready})


def ended_of_users(cluster: Cluster) -> None:
    """Have a container of the template run again, as one that a schedule ends."""
    last = {"terminated": {"reason": "Completed", "exitCode": 0, "finishedAt": _AT}}
    one = {"name": "logs", "restartCount": 3, "lastState": last, "state": {"running": {}}}
    cluster.pod["status"]["containerStatuses"].append(one)


def crashing(container: str, reason: str, code: int) -> Change:
    return both(ended(container, reason, code), waiting(container, "CrashLoopBackOff"))


def both(*changes: Change) -> Change:
    def change(cluster: Cluster) -> None:
        for one in changes:
            one(cluster)

    return change


def unready(since: str, **others: str) -> Change:
    """Have Kubernetes call a pod not ready that has its gate and its containers."""
    states = {"ContainersReady": "True", "rlfleet.dev/WeightsReady": "True"} | others

    def change(cluster: Cluster) -> None:
        cluster.pod["spec"]["nodeName"] = "gpu-1"
        cluster.pod["spec"]["readinessGates"] = [{"conditionType": "rlfleet.dev/WeightsReady"}]
        cluster.pod["status"]["conditions"] = [
            {"type": kind, "status": state, "lastTransitionTime": "2026-11-25T01:00:00Z"}
            for kind, state in states.items()
        ] + [{"type": "Ready", "status": "False", "lastTransitionTime": since}]

    return change


def unscheduled(message: str) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.pod["status"] = {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": message,
                }
            ],
        }

    return change


def starting(reason: str, message: str) -> Change:
    """Have the kubelet complain about a pod that has not started."""

    def change(cluster: Cluster) -> None:
        cluster.pod["status"] = {"phase": "Pending"}
        cluster.space["events"].append(event("Pod", "qwen-0", reason, message))

    return change


def said(kind: str, reason: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["conditions"].append(condition(kind, reason))


def in_fleet(path: str, value: Any) -> Change:
    """Set a field of the fleet, by its dotted path."""

    def change(cluster: Cluster) -> None:
        *parts, last = path.split(".")
        at = cluster.fleet
        for part in parts:
            at = at.setdefault(part, {})
        at[last] = value

    return change


def setting(name: str, value: str) -> Change:
    """Set a variable of the operator."""

    def change(cluster: Cluster) -> None:
        env = cluster.deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        env[:] = [one for one in env if one["name"] != name] + [{"name": name, "value": value}]

    return change


def policed(where: str, **spec: Any) -> Change:
    namespace = {"space": "plugin", "operator": "plugin-system"}[where]
    return lambda cluster: getattr(cluster, where)["networkpolicies"].append(
        policy(namespace, **spec)
    )


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


def worker(phase: str, message: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["workers"][0].update(
        {"phase": phase, "message": message}
    )


def lease(**spec: Any) -> Change:
    return lambda cluster: cluster.operator["leases"][0]["spec"].update(spec)


def replicas(**status: int) -> Change:
    return lambda cluster: cluster.deployment["status"].update(status)


def without_field(cluster: Cluster) -> None:
    schema = cluster.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["weights"]["properties"]["sharing"]


def with_field(cluster: Cluster) -> None:
    schema = cluster.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["novel"] = {"type": "string"}


def quota(used: str) -> Change:
    def change(cluster: Cluster) -> None:
        cluster.space["pods"] = []
        found = {"hard": {"pods": "4"}, "used": {"pods": used}}
        cluster.space["resourcequotas"].append({"metadata": {"name": "small"}, "status": found})

    return change


def taken(kind: str, name: str, owner: str = "other") -> Change:
    def change(cluster: Cluster) -> None:
        owners = [{"kind": "RLInferenceFleet", "name": "other", "uid": owner}]
        metadata = {"name": name, "namespace": "plugin", "ownerReferences": owners}
        cluster.space[kind] = [
            one for one in cluster.space[kind] if one["metadata"]["name"] != name
        ]
        cluster.space[kind].append({"metadata": metadata})

    return change


def refused(message: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["rollout"].update(
        {"phase": "Refused", "to": "step-9", "message": message}
    )


def awaiting(message: str) -> Change:
    return lambda cluster: cluster.fleet["status"]["rollout"].update(
        {"phase": "Preparing", "to": "step-7", "message": message}
    )


def of_operator(image: str) -> Change:
    """Have the operator's image not be pulled."""

    def change(cluster: Cluster) -> None:
        state = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        status = {"name": "operator", "image": image, "state": state}
        cluster.operator["pods"][0]["status"]["containerStatuses"] = [status]

    return change


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


def deleted(at: str) -> Change:
    return lambda cluster: cluster.pod["metadata"].update({"deletionTimestamp": at})


def put(where: str, value: Any) -> Change:
    return lambda cluster: setattr(cluster, where, value)


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
HTTP = {"ports": [{"port": 8000}]}
SHOWN: list[tuple[str, Change, Severity, str, str, str]] = [
    (
        "a version whose marker the trainer has not written",
        awaiting("qwen-0 waiting: /data/weights/step-7 has no marker (STABLE or .finished)"),
        W,
        "VersionAwaited",
        "rollout 1 to step-7 for 5m: qwen-0 waiting: /data/weights/step-7 has no marker",
        "(it is rejected after 900 s), or kubectl rlf abort qwen -n plugin",
    ),
    (
        "an operator's image",
        of_operator("x:1"),
        E,
        "ImageNotPulled",
        "x:1, which cannot be pulled: not found",
        "-n plugin-system --reset-then-reuse-values --set image.repository=NAME",
    ),
    ("no definition", put("definition", None), E, "DefinitionMissing", "no such", "helm upgrade"),
    ("an old one", without_field, W, "DefinitionOlder", "spec.weights.sharing", "helm upgrade"),
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
        "a worker of a lost node",
        unready("2026-11-25T02:50:00Z"),
        E,
        "PodNotReady",
        "node gpu-1 may be lost",
        "kubectl describe node gpu-1",
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
        "add plugin to the chart's namespaces",
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
        "helm upgrade RELEASE",
    ),
    (
        "what may not be read",
        put("unread", {"pods": "Forbidden: x", "events": "y"}),
        U,
        "NotReadable",
        "cannot read events, pods: y",
        "can-i list events",
    ),
    (
        "no room on a node",
        unscheduled(f"0/1 {NODE}: 1 Insufficient nvidia.com/gpu."),
        E,
        "Unschedulable",
        "Insufficient nvidia.com/gpu",
        "spec.engine.resources.requests",
    ),
    (
        "a tainted node",
        unscheduled(f"1 {NODE} had untolerated taint"),
        E,
        "Unschedulable",
        "taint",
        "tolerations",
    ),
    (
        "an image that is not there",
        waiting("engine", "ImagePullBackOff", "not found"),
        E,
        "ImageNotPulled",
        "rlfleet.local/worker",
        PATCH + '{"spec":{"engine":{"image":"IMAGE"}}}\'',
    ),
    (
        "an image without access",
        waiting("sidecar", "ErrImagePull", "authorization failed"),
        E,
        "ImageNotPulled",
        "authorization failed",
        "imagePullSecrets",
    ),
    (
        "a container that is not created",
        waiting("engine", "CreateContainerConfigError", 'secret "x" not found'),
        E,
        "ContainerNotCreated",
        'secret "x" not found',
        "a Secret",
    ),
    (
        "an engine out of memory",
        crashing("engine", "OOMKilled", 137),
        E,
        "ContainerCrashes",
        "OOMKilled, exit code 137",
        PATCH + '{"spec":{"engine":{"resources":{"limits":{"memory":"SIZE"}}}}}\'',
    ),
    (
        "an engine that fails",
        crashing("engine", "Error", 1),
        E,
        "ContainerCrashes",
        "CrashLoopBackOff, 3 restarts: Error, exit code 1",
        "logs qwen-0 -c engine --previous",
    ),
    (
        "an engine that runs once more and was never ready",
        both(ended("engine", "Completed", 0), readiness("engine", is_ready=False)),
        E,
        "ContainerRestarted",
        "restarted 3 times: Completed, exit code 0",
        "logs qwen-0 -c engine --previous",
    ),
    (
        "an engine that ended well and is up again",
        ended("engine", "Completed", 0),
        W,
        "ContainerRestarted",
        "restarted 3 times: Completed, exit code 0",
        "logs qwen-0 -c engine --previous",
    ),
    (
        "a sidecar that was restarted",
        ended("sidecar", "OOMKilled", 137),
        W,
        "ContainerRestarted",
        "restarted 3 times: OOMKilled",
        "raise the limit (now none: that of the node)",
    ),
    (
        "a volume that is not mounted",
        starting("FailedMount", 'secret "qwen-admin" not found'),
        E,
        "VolumeNotMounted",
        'secret "qwen-admin" not found',
        "a Secret",
    ),
    (
        "a pod that failed",
        lambda c: c.pod.update(status={"phase": "Failed", "reason": "Evicted", "message": "disk"}),
        E,
        "PodFailed",
        "Evicted: disk",
        "delete pod qwen-0",
    ),
    (
        "a pod on a lost node",
        deleted("2026-11-25T02:40:00Z"),
        W,
        "PodTerminating",
        "12m",
        "--force",
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
        "from-file=ca.crt",
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
    (
        "no claim",
        lambda c: c.space["persistentvolumeclaims"].clear(),
        E,
        "ClaimMissing",
        "spec.model.volume",
        "create it",
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
    (
        "a policy that keeps the operator out",
        policed("space", policyTypes=["Ingress"], ingress=[HTTP]),
        E,
        "PolicyBlocksOperator",
        "port 8090: networkpolicy plugin/strict",
        "port 8090 from namespaceSelector kubernetes.io/metadata.name=plugin-system",
    ),
    (
        "a policy for another namespace's operator",
        policed(
            "space", ingress=[HTTP, {"ports": [{"port": 8090}], "from": [{"podSelector": {}}]}]
        ),
        E,
        "PolicyBlocksOperator",
        "port 8090",
        "add an ingress rule",
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
        "port 9090 from",
    ),
    (
        "a policy that keeps samplers out",
        policed("space", ingress=[ADMIN_FROM_OPERATOR]),
        E,
        "PolicyBlocksSamplers",
        "port 8000",
        "port 8000 from your samplers",
    ),
    (
        "a policy that lets the operator alone reach the engines",
        policed("space", ingress=[ADMIN_FROM_OPERATOR, HTTP_FROM_OPERATOR]),
        E,
        "PolicyBlocksSamplers",
        "port 8000",
        "port 8000 from your samplers",
    ),
    (
        "a policy that keeps the operator in",
        policed("operator", policyTypes=["Egress"], egress=[{"ports": [{"port": 443}]}]),
        E,
        "PolicyBlocksOperator",
        "no rule lets the operator send to port 8090",
        "rlfleet.dev/fleet=qwen",
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


def test_a_mend_that_deletes_names_each_object() -> None:
    cluster = Cluster()
    taken("services", "qwen-workers")(cluster)
    taken("services", "qwen")(cluster)

    (found,) = cluster.diagnosed()
    assert len(found.others) == 1
    assert "delete service/qwen-workers service/qwen," in found.mend


def test_a_mend_that_deletes_is_of_one_namespace() -> None:
    one = finding.error("C", "a/x", "bad", f"kubectl -n a delete pod {finding.EACH}", "x")
    other = finding.error("C", "b/x", "bad", f"kubectl -n b delete pod {finding.EACH}", "x")
    assert [f.mend for f in finding.grouped([one, other])] == [
        "kubectl -n a delete pod x",
        "kubectl -n b delete pod x",
    ]


def test_nothing_is_wrong_with_a_healthy_fleet() -> None:
    assert Cluster().diagnosed() == []


@pytest.mark.parametrize(
    ("change", "severity", "check", "found", "mend"),
    [case[1:] for case in SHOWN],
    ids=[case[0] for case in SHOWN],
)
def test_a_defect_is_found(
    change: Change, severity: Severity, check: str, found: str, mend: str
) -> None:
    cluster = Cluster()
    change(cluster)

    shown = {one.check: one for one in cluster.diagnosed()}
    assert check in shown
    assert shown[check].severity is severity
    assert found in shown[check].found
    assert mend in shown[check].mend


def test_a_silent_worker_without_a_message_leaves_no_colon_behind() -> None:
    cluster = Cluster()
    worker("Unreachable", "")(cluster)

    (shown,) = (one for one in cluster.diagnosed() if one.check == "WorkerUnreachable")
    assert shown.found == "the operator gets no answer"
    assert "logs qwen-0 -c sidecar" in shown.mend


CORE_FAILED = """\
(EngineCore pid=21) ERROR 11-27 10:17:36 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=21) ERROR 11-27 10:17:36 [core.py:1510] ValueError: No memory for the cache blocks.
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def test_the_log_of_a_crashed_engine_says_more_than_its_last_two_kilobytes() -> None:
    cluster = Cluster()
    crashing("engine", "Error", 1)(cluster)
    space = Scene(NAMESPACE, cluster.space)

    ((pod, container),) = pods.crashed(space)
    pods.last_end(container)["message"] = CORE_FAILED
    shown = {one.check: one for one in cluster.diagnosed()}

    assert (pod, container["name"]) == (cluster.pod, "engine")
    assert shown["ContainerCrashes"].found.endswith("ValueError: No memory for the cache blocks.")


@pytest.mark.parametrize(
    "change",
    [both(), ended("engine", "Error", 1), waiting("engine", "ContainerCreating")],
    ids=["none has ended", "it is ready again", "it begins"],
)
def test_only_logs_of_crashed_engines_are_read(change: Change) -> None:
    cluster = Cluster()
    change(cluster)

    assert pods.crashed(Scene(NAMESPACE, cluster.space)) == []


HARMLESS: list[tuple[str, Change]] = [
    (
        "a definition that may not be read",
        both(put("definition", None), put("is_definition_known", value=False)),
    ),
    ("an operator of all namespaces", setting("RLFLEET_NAMESPACES", "")),
    ("one of several namespaces", setting("RLFLEET_NAMESPACES", "rl, plugin")),
    ("a pod that is about to be ready", unready("2026-11-25T02:52:15Z")),
    (
        "a pod whose weights are not proved",
        unready("2026-11-25T02:50:00Z", **{"rlfleet.dev/WeightsReady": "False"}),
    ),
    ("a pod that starts", unready("2026-11-25T02:50:00Z", ContainersReady="False")),
    ("a clock that is 20 s ahead", lease(renewTime="2026-11-25T02:52:10.000000Z")),
    ("a restart of long ago", ended("engine", "Error", 1, at="2026-11-25T01:00:00Z")),
    ("a container of the user's that ended well", ended_of_users),
    ("a container that is created", waiting("engine", "ContainerCreating")),
    (
        "an event of a pod that runs",
        lambda c: c.space["events"].append(event("Pod", "qwen-0", "FailedMount", "x")),
    ),
    (
        "an event of another pod",
        lambda c: c.space["events"].append(event("Pod", "qwen-9", "FailedMount", "x")),
    ),
    ("a pod in its grace period", deleted("2026-11-25T02:53:00Z")),
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
        "a claim that waits for its first pod",
        both(
            pending_claim("WaitForFirstConsumer"),
            lambda c: c.space["pods"].clear(),
            in_fleet("spec.replicas", 0),
        ),
    ),
    ("one worker on a claim for one node", with_modes(["ReadWriteOnce"], 1)),
    ("two workers on a shared claim", with_modes(["ReadWriteOnce", "ReadOnlyMany"], 2)),
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
    (
        "a quota with room, and a pod",
        lambda c: c.space["resourcequotas"].append(
            {"metadata": {"name": "q"}, "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}
        ),
    ),
    ("canaries that wait for holdSeconds", canary("Auto")),
    ("a Lease that may not be read", lambda c: c.operator.pop("leases")),
]


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_looks_like_a_defect_is_not_shown(change: Change) -> None:
    cluster = Cluster()
    change(cluster)

    assert cluster.diagnosed() == []


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


def test_a_pod_that_waits_for_a_claim_is_not_shown_next_to_the_claim() -> None:
    cluster = Cluster()
    cluster.space["persistentvolumeclaims"].clear()
    unscheduled('0/1 nodes are available: persistentvolumeclaim "checkpoints" not found.')(cluster)

    assert [one.check for one in cluster.diagnosed()] == ["ClaimMissing"]


def test_the_end_of_a_long_message_is_shown_because_it_has_the_cause() -> None:
    cluster = Cluster()
    waiting("engine", "ErrImagePull", f"failed to pull {'x' * 400}: no such host")(cluster)

    (one,) = cluster.diagnosed()
    assert one.found.endswith("x: no such host")
    assert len(one.found) < 400


def test_what_doctor_takes_for_waiting_is_what_the_operator_writes() -> None:
    seen = Progress(version="step-7", bytes_done=0, bytes_total=0, waiting_for="no marker")
    message = awaited_by(worker_of(0, progress=seen), "step-7")

    cluster = Cluster()
    awaiting(f"qwen-0 {message}")(cluster)
    assert [one.check for one in cluster.diagnosed()] == ["VersionAwaited"]


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


def test_nothing_read_is_no_diagnosis_unless_rights_are_missing() -> None:
    refused = "E1125 x\nThe connection to the server 127.0.0.1:1 was refused"
    gone = Scene("rl", unread={"pods": refused})

    assert unreachable([gone]) == "The connection to the server 127.0.0.1:1 was refused"
    assert not unreachable([gone, Scene("rl", {"pods": []})])
    assert not unreachable([Scene("rl", unread={"pods": "Error (Forbidden): pods is forbidden"})])
    assert not unreachable([Scene("rl")])


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
