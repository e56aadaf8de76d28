"""Defects of pods that `doctor` finds: nodes, images, volumes, crashes."""

import pytest

from rlfleet_kubectl.core.doctor import pods
from rlfleet_kubectl.core.doctor.finding import Severity
from rlfleet_kubectl.core.doctor.scene import Scene
from tests.unit.rlfleet_kubectl.clusters import NAMESPACE, Change, Cluster, event
from tests.unit.rlfleet_kubectl.defects import (
    AT,
    Defect,
    both,
    demand_found,
    demand_nothing,
    ended,
    unscheduled,
    waiting,
)

E = Severity.ERROR
W = Severity.WARNING


NODE = "node(s)"


PATCH = "kubectl -n plugin patch rlf qwen --type=merge -p '"


def readiness(container: str, *, is_ready: bool) -> Change:
    return lambda cluster: cluster.container(container).update({"ready": is_ready})


def ended_of_users(cluster: Cluster) -> None:
    """Have a container of the template run again, as one that a schedule ends."""
    last = {"terminated": {"reason": "Completed", "exitCode": 0, "finishedAt": AT}}
    one = {"name": "logs", "restartCount": 3, "lastState": last, "state": {"running": {}}}
    cluster.pod["status"]["containerStatuses"].append(one)


def crashing(container: str, reason: str, code: int) -> Change:
    return both(ended(container, reason, code), waiting(container, "CrashLoopBackOff"))


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


def unseen(since: str) -> Change:
    """Have no scheduler look at a pod."""

    def change(cluster: Cluster) -> None:
        cluster.pod["metadata"]["creationTimestamp"] = since
        cluster.pod["spec"].pop("nodeName", None)
        cluster.pod["status"] = {"phase": "Pending"}

    return change


def starting(reason: str, message: str) -> Change:
    """Have the kubelet complain about a pod that has not started."""

    def change(cluster: Cluster) -> None:
        cluster.pod["status"] = {"phase": "Pending"}
        cluster.space["events"].append(event("Pod", "qwen-0", reason, message))

    return change


def of_operator(image: str) -> Change:
    """Have the operator's image not be pulled."""

    def change(cluster: Cluster) -> None:
        state = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        status = {"name": "operator", "image": image, "state": state}
        cluster.operator["pods"][0]["status"]["containerStatuses"] = [status]

    return change


def deleted(at: str) -> Change:
    return lambda cluster: cluster.pod["metadata"].update({"deletionTimestamp": at})


SHOWN: list[Defect] = [
    (
        "an operator's image",
        of_operator("x:1"),
        E,
        "ImageNotPulled",
        "x:1, which cannot be pulled: not found",
        "-n plugin-system --reset-then-reuse-values --set image.repository=NAME",
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
        "no room on a node",
        unscheduled(f"0/1 {NODE}: 1 Insufficient nvidia.com/gpu."),
        E,
        "Unschedulable",
        "Insufficient nvidia.com/gpu",
        "spec.engine.resources.requests",
    ),
    (
        "no scheduler",
        unseen("2026-11-25T02:50:00Z"),
        E,
        "Unschedulable",
        "no scheduler has looked at it for",
        "spec.template.spec.schedulerName",
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
]
HARMLESS: list[tuple[str, Change]] = [
    ("a pod that is about to be ready", unready("2026-11-25T02:52:15Z")),
    (
        "a pod whose weights are not proved",
        unready("2026-11-25T02:50:00Z", **{"rlfleet.dev/WeightsReady": "False"}),
    ),
    ("a pod that starts", unready("2026-11-25T02:50:00Z", ContainersReady="False")),
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
]


@pytest.mark.parametrize("defect", SHOWN, ids=[one[0] for one in SHOWN])
def test_a_defect_is_found(defect: Defect) -> None:
    demand_found(defect)


@pytest.mark.parametrize("change", [one[1] for one in HARMLESS], ids=[one[0] for one in HARMLESS])
def test_what_only_looks_like_a_defect_is_not_shown(change: Change) -> None:
    demand_nothing(change)


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


def test_what_an_engine_wrote_of_its_end_stands_although_its_log_has_later_errors() -> None:
    cluster = Cluster()
    crashing("engine", "Completed", 0)(cluster)
    last = pods.last_end(cluster.container("engine"))
    last["message"] = "Worker proc VllmWorker-0 died unexpectedly (exit code: -9)\n"

    assert pods.crashed(Scene(NAMESPACE, cluster.space)) == []
    del last["message"]
    assert len(pods.crashed(Scene(NAMESPACE, cluster.space))) == 1


@pytest.mark.parametrize(
    "change",
    [both(), ended("engine", "Error", 1), waiting("engine", "ContainerCreating")],
    ids=["none has ended", "it is ready again", "it begins"],
)
def test_only_logs_of_crashed_engines_are_read(change: Change) -> None:
    cluster = Cluster()
    change(cluster)

    assert pods.crashed(Scene(NAMESPACE, cluster.space)) == []


def test_the_end_of_a_long_message_is_shown_because_it_has_the_cause() -> None:
    cluster = Cluster()
    waiting("engine", "ErrImagePull", f"failed to pull {'x' * 400}: no such host")(cluster)

    (one,) = cluster.diagnosed()
    assert one.found.endswith("x: no such host")
    assert len(one.found) < 400
