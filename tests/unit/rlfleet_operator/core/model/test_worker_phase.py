"""The phase of one worker and what is wrong with it."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.core.model.worker_phase import (
    BADNESS,
    CHANGING,
    Phase,
    complaint_of,
    phase_of,
)
from rlfleet_operator.core.model.world import Worker
from tests.workers import MOMENT, pod, problem, recorded, worker, world

BY_STAGE = {
    Stage.DOWN: Phase.STARTING,
    Stage.CLOSED: Phase.CATCHING_UP,
    Stage.OPEN: Phase.SERVING,
    Stage.PAUSED: Phase.PAUSING,
    Stage.LOADING: Phase.RELOADING,
    Stage.LOADED: Phase.VERIFYING,
    Stage.PROVED: Phase.RESUMING,
    Stage.DOUBT: Phase.QUARANTINED,
}
BY_VERB = {
    Verb.PREPARE: Phase.PREPARING,
    Verb.PAUSE: Phase.PAUSING,
    Verb.FLUSH: Phase.FLUSHING,
    Verb.RELOAD: Phase.RELOADING,
    Verb.VERIFY: Phase.VERIFYING,
    Verb.RESUME: Phase.RESUMING,
    # It serves and waits for nothing.
    Verb.ADAPT: Phase.SERVING,
}
NEW = Worker("qwen-0", 0)
SILENT = replace(worker(), reachable=False)
UNHEARD = replace(NEW, pod=pod(), silence="no answer")
REFUSED = pod(phase="Failed", trouble="OutOfcpu: no room")
LOST = pod(terminating=True, ends_by=MOMENT - 60, trouble="no room")
KEPT = replace(LOST, finalizers=("kueue.x-k8s.io/managed",))
TO_2: dict[str, Any] = {"weightVersion": "step-2", "status": recorded("step-2", "Preparing")}
UNSEEN = (
    "no scheduler has looked at the pod;"
    " kube-scheduler, or the one in spec.template.spec.schedulerName, does not run"
)
AWAITED = "waiting for init container vault-init; log: kubectl logs qwen-0 -c vault-init"
STILL_ENDS = "pod is still terminating; if its node is lost, delete the pod with --force"
STILL_KEPT = (
    "pod is still terminating, kept by finalizers: kueue.x-k8s.io/managed;"
    " see what the controller of each waits for"
)


def doing(verb: Verb, stage: Stage) -> Worker:
    return worker(stage=stage, running=Running(verb=verb, operation="o", version="step-2"))


@pytest.mark.parametrize("stage", Stage)
def test_a_worker_that_does_nothing_is_where_its_stage_says(stage: Stage) -> None:
    assert phase_of(worker(stage=stage)) == BY_STAGE[stage]


@pytest.mark.parametrize("verb", Verb)
def test_a_running_command_decides_the_phase(verb: Verb) -> None:
    assert phase_of(doing(verb, Stage.OPEN)) == BY_VERB[verb]


def test_a_prepare_hides_no_stage_of_a_worker_that_serves_nothing() -> None:
    assert phase_of(doing(Verb.PREPARE, Stage.DOUBT)) == Phase.QUARANTINED
    assert phase_of(doing(Verb.PREPARE, Stage.CLOSED)) == Phase.CATCHING_UP


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (NEW, Phase.PENDING),
        (replace(NEW, pod=pod(phase="Pending")), Phase.PENDING),
        (replace(NEW, pod=pod()), Phase.STARTING),
        (UNHEARD, Phase.UNREACHABLE),
        (replace(UNHEARD, pod=pod(phase="Failed")), Phase.PENDING),
        (SILENT, Phase.UNREACHABLE),
        (replace(SILENT, pod=pod(phase="Failed")), Phase.PENDING),
        (replace(worker(), pod=pod(terminating=True)), Phase.TERMINATING),
        (replace(SILENT, pod=pod(terminating=True)), Phase.TERMINATING),
    ],
    ids=[
        "no pod",
        "a pod that is not placed",
        "a sidecar that has not answered yet",
        "a sidecar that has not answered for a while",
        "a pod that ended before its sidecar answered",
        "a sidecar that stopped answering",
        "a pod that has ended",
        "a pod that ends",
        "a pod that ends in silence",
    ],
)
def test_the_phase_of_a_worker_that_cannot_be_asked(subject: Worker, expected: Phase) -> None:
    assert phase_of(subject) == expected


def test_every_phase_has_its_place_from_worst_to_best() -> None:
    assert sorted(BADNESS, key=BADNESS.__getitem__) == list(Phase)
    assert BADNESS[Phase.QUARANTINED] == 0
    assert max(BADNESS, key=BADNESS.__getitem__) is Phase.SERVING
    assert set(CHANGING) < set(Phase)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (worker(), None),
        (NEW, None),
        (worker(failure=problem(Code.PAUSE_FAILED)), "PauseFailed: why"),
        (worker(refusal=problem(Code.CHECKPOINT_INVALID)), "CheckpointInvalid: why"),
        (
            worker(failure=problem(Code.RELOAD_FAILED), refusal=problem(Code.CHECKPOINT_INVALID)),
            "ReloadFailed: why",
        ),
        (
            replace(worker(failure=problem(Code.RELOAD_FAILED)), pod=pod(trouble="no room")),
            "no room",
        ),
        (replace(worker(failure=problem(Code.RELOAD_FAILED)), reachable=False), None),
        (UNHEARD, "no answer"),
        (replace(SILENT, silence="no answer"), "no answer"),
        (replace(UNHEARD, pod=pod(trouble="no room")), "no room"),
        (replace(UNHEARD, pod=pod(terminating=True)), None),
        (
            replace(NEW, pod=REFUSED, replace_at=MOMENT + 4),
            "pod has failed, will be replaced at 2023-11-14T22:13:24Z: OutOfcpu: no room",
        ),
        (
            replace(NEW, pod=pod(phase="Succeeded"), replace_at=MOMENT + 4),
            "pod has succeeded, will be replaced at 2023-11-14T22:13:24Z",
        ),
        (replace(NEW, pod=replace(REFUSED, terminating=True)), "OutOfcpu: no room"),
        (replace(SILENT, pod=LOST), STILL_ENDS),
        (replace(SILENT, pod=KEPT), STILL_KEPT),
        (replace(SILENT, pod=replace(LOST, ends_by=MOMENT - 59)), "no room"),
        (
            replace(worker(), pod=pod(ready=False)),
            "engine serves, pod not ready; see its node and: kubectl describe pod qwen-0",
        ),
        (replace(NEW, pod=pod(phase="Pending", created_at=MOMENT - 29)), None),
        (replace(NEW, pod=pod(phase="Pending", created_at=MOMENT - 30)), UNSEEN),
        (replace(NEW, pod=pod(phase="Pending", created_at=0.0, topology=("", "a"))), None),
        (replace(NEW, pod=pod(phase="Pending", created_at=0.0, trouble="no room")), "no room"),
        (replace(NEW, pod=pod(phase="Pending", created_at=0.0, terminating=True)), None),
        (replace(worker(), pod=pod(ready=False, weights_ready_at=MOMENT - 9)), None),
        (
            replace(worker(), pod=pod(ready=False, weights_ready_at=MOMENT - 10)),
            "engine serves, pod not ready; see its node and: kubectl describe pod qwen-0",
        ),
        (
            replace(worker(), pod=pod(ready=False, unready="proxy not ready")),
            "engine serves, pod not ready: proxy not ready; see: kubectl describe pod qwen-0",
        ),
        (replace(NEW, pod=pod(phase="Pending", awaited_init="vault-init")), AWAITED),
        (replace(worker(stage=Stage.DOWN), pod=pod(awaited_init="vault-init")), AWAITED),
        (replace(worker(), pod=pod(ready=False, weights_ready=False)), None),
        (replace(worker(), pod=pod(ready=False, terminating=True)), None),
    ],
    ids=[
        "nothing",
        "nothing is known",
        "a failure",
        "a refusal",
        "a failure precedes a rejection",
        "the trouble of the pod precedes all",
        "what a silent sidecar said is old",
        "a sidecar that never answered",
        "a sidecar that stopped to answer",
        "a container that does not run precedes its silence",
        "a terminating pod need not answer",
        "a pod that failed",
        "a pod that ended well",
        "a pod that failed and goes",
        "a pod that outlives its grace",
        "a pod that finalizers keep",
        "a pod that may still take its grace",
        "a pod whose node is lost",
        "a pod that a scheduler may not have seen yet",
        "a pod that no scheduler sees",
        "a pod whose node begins",
        "a pod that fits no node",
        "a pod that goes before it has a node",
        "a pod whose gate the kubelet has not seen yet",
        "a pod whose gate the kubelet does not see",
        "a container of another tool that is not ready",
        "an init container before the sidecar",
        "an init container after the sidecar",
        "a pod that the operator keeps from traffic",
        "a pod that goes",
    ],
)
def test_what_is_wrong_with_a_worker(subject: Worker, expected: str | None) -> None:
    assert complaint_of(subject, world(**TO_2)) == expected


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        ("step-2", "VersionNotFound: why"),
        ("step-1", "VersionNotFound: why"),
        ("typo", None),
    ],
    ids=["requested", "fallback", "no longer requested"],
)
def test_a_rejection_is_reported_while_its_version_is_requested(
    refused: str, expected: str | None
) -> None:
    subject = worker(refusal=problem(Code.VERSION_NOT_FOUND, refused))

    assert complaint_of(subject, world(**TO_2)) == expected


def test_a_rejection_is_reported_without_a_target() -> None:
    subject = worker(refusal=problem(Code.VERSION_NOT_FOUND, "its-own"))

    assert complaint_of(subject, world(weightVersion=None)) == "VersionNotFound: why"


def test_a_failure_is_reported_with_a_rejection_that_is_not_requested() -> None:
    old = problem(Code.VERSION_NOT_FOUND, "typo")
    subject = worker(failure=problem(Code.RELOAD_FAILED), refusal=old)

    assert complaint_of(subject, world(**TO_2)) == "ReloadFailed: why"
