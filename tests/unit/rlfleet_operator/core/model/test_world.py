"""What is made of raw objects, and what follows from a worker's report."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from types import FrameType
from typing import Any

import pytest
from pydantic import ValidationError

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Running, Stage
from rlfleet_operator.core.model.fleet import fleet_from
from rlfleet_operator.core.model.pod import pod_from
from rlfleet_operator.core.model.world import (
    FLEET_LABEL,
    ORDINAL_LABEL,
    READINESS_GATE,
    TEMPLATE_ANNOTATION,
    VERSION_LABEL,
    Worker,
    World,
)
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from tests.workers import pod, problem, recorded, report, worker, world

LABELS = {FLEET_LABEL: "qwen", ORDINAL_LABEL: "3"}


def raw(*, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    """Return a pod as the API server returns it."""
    metadata = {"name": "qwen-3", "uid": "u", "labels": LABELS if labels is None else labels}
    return {"metadata": metadata, "status": status}


def conditions(**found: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": status} for kind, status in found.items()]


def waiting(name: str, reason: str, message: str = "why") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


# --- pods -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {FLEET_LABEL: "qwen"},
        {ORDINAL_LABEL: "3"},
        {FLEET_LABEL: "qwen", ORDINAL_LABEL: "three"},
        {FLEET_LABEL: "qwen", ORDINAL_LABEL: "-1"},
        {FLEET_LABEL: "qwen", ORDINAL_LABEL: ""},
        {FLEET_LABEL: "qwen", ORDINAL_LABEL: "4"},
        {FLEET_LABEL: "other", ORDINAL_LABEL: "3"},
    ],
    ids=str,
)
def test_a_pod_without_the_labels_of_its_name_is_no_worker_s(labels: dict[str, str]) -> None:
    assert pod_from(raw(labels=labels)) is None


def test_a_pod_of_which_nothing_is_known_yet_is_pending() -> None:
    found = pod_from({"metadata": {"name": "qwen-3", "uid": "u", "labels": LABELS}})

    assert found == pod(
        3,
        uid="u",
        owner_uid="",
        template_hash="",
        address=None,
        phase="Pending",
        ready=False,
        weights_ready=None,
        version_label=None,
    )


OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
OOM_SAID = "exit code 137, OOMKilled"


def test_all_that_decisions_need_is_read_from_a_pod() -> None:
    told = raw(
        labels=LABELS | {VERSION_LABEL: "step-1"},
        phase="Running",
        podIP="fd00::1",
        conditions=conditions(Ready="True", **{READINESS_GATE: "False"}),
        containerStatuses=[{"name": "engine", "restartCount": 2}],
    )
    told["metadata"] |= {
        "annotations": {TEMPLATE_ANNOTATION: "h"},
        "ownerReferences": [
            {
                "apiVersion": "rlfleet.dev/v1alpha1",
                "kind": "RLInferenceFleet",
                "name": "qwen",
                "uid": "f-1",
            }
        ],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kueue.x-k8s.io/managed"],
    }

    assert pod_from(told) == pod(
        3,
        uid="u",
        template_hash="h",
        address="fd00::1",
        weights_ready=False,
        terminating=True,
        ends_by=1_767_225_600.0,
        engine_restarts=2,
        finalizers=("kueue.x-k8s.io/managed",),
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, None),
        ("True", True),
        ("False", False),
        ("Unknown", False),
    ],
)
def test_an_unwritten_readiness_gate_differs_from_a_false_one(
    status: str | None, *, expected: bool | None
) -> None:
    found = pod_from(raw(conditions=conditions(**{READINESS_GATE: status} if status else {})))

    assert found is not None
    assert found.weights_ready is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, None),
        ({"containerStatuses": [waiting("engine", "ContainerCreating")]}, None),
        ({"containerStatuses": [waiting("engine", "PodInitializing")]}, None),
        (
            {"containerStatuses": [waiting("engine", "ImagePullBackOff", "no such image")]},
            "engine: ImagePullBackOff: no such image",
        ),
        (
            {"initContainerStatuses": [waiting("sidecar", "CrashLoopBackOff")]},
            (
                "sidecar: CrashLoopBackOff: restart 0; log:"
                " kubectl logs qwen-3 -c sidecar --previous"
            ),
        ),
        (
            {
                "containerStatuses": [
                    {
                        **waiting("engine", "CrashLoopBackOff", "back-off 5m0s"),
                        "restartCount": 6,
                        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            },
            (
                "engine: CrashLoopBackOff: restart 6, exit code 137, OOMKilled; log:"
                " kubectl logs qwen-3 -c engine --previous"
            ),
        ),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes are available",
                    }
                ]
            },
            "Unschedulable: 0/1 nodes are available",
        ),
        ({"conditions": conditions(PodScheduled="True")}, None),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "Evicted: low on memory",
        ),
        ({"phase": "Failed"}, "Failed: "),
        ({"containerStatuses": [{"name": "engine", "state": {"running": {}}}]}, None),
    ],
    ids=[
        "nothing is reported",
        "a container that is made",
        "a pod that begins",
        "an image that is not there",
        "a sidecar that crashes",
        "an engine that crashes again and again",
        "no room",
        "placed",
        "evicted",
        "failed without a word",
        "running",
    ],
)
def test_trouble_is_reported_with_its_cause_or_the_way_to_it(
    status: dict[str, Any], expected: str | None
) -> None:
    found = pod_from(raw(**status))

    assert found is not None
    assert found.trouble == expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], 0),
        ([{"name": "engine"}], 0),
        ([{"name": "engine", "restartCount": 4}], 4),
        ([{"name": "other", "restartCount": 4}, {"name": "engine", "restartCount": 1}], 1),
    ],
)
def test_only_the_engine_s_restarts_count(statuses: list[dict[str, Any]], expected: int) -> None:
    sidecar = [{"name": "sidecar", "restartCount": 9}]
    found = pod_from(raw(containerStatuses=statuses, initContainerStatuses=sidecar))

    assert found is not None
    assert found.engine_restarts == expected


@pytest.mark.parametrize(
    ("sidecar", "expected"),
    [
        ({"restartCount": 0, "ready": False}, None),
        ({"restartCount": 3, "ready": True, "lastState": OOM}, None),
        ({"restartCount": 3, "ready": False, "lastState": OOM}, f"restart 3, {OOM_SAID}"),
        ({"restartCount": 3, "ready": False, "state": OOM}, f"restart 3, {OOM_SAID}"),
        ({"restartCount": 1, "ready": False}, "restart 1"),
    ],
    ids=["starts", "is up again", "runs", "has just ended", "no end is known"],
)
def test_a_crash_is_known_between_restarts(sidecar: dict[str, Any], expected: str | None) -> None:
    found = pod_from(raw(initContainerStatuses=[{"name": "sidecar", **sidecar}]))

    log = "log: kubectl logs qwen-3 -c sidecar --previous"
    assert found is not None
    assert found.trouble is None
    assert found.crash == (None if expected is None else f"sidecar: {expected}; {log}")


@pytest.mark.parametrize(
    ("ready_at", "is_cause"),
    [("2026-01-01T00:00:05Z", True), ("2026-01-01T00:06:00Z", False)],
    ids=["it restarts", "it was up again, and hangs"],
)
def test_a_crash_long_ago_is_not_why_a_sidecar_is_silent(ready_at: str, *, is_cause: bool) -> None:
    sidecar = {
        "name": "sidecar",
        "restartCount": 1,
        "ready": False,
        "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}},
    }
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ready_at}

    found = pod_from(raw(initContainerStatuses=[sidecar], conditions=[ready]))

    assert found is not None
    assert (found.crash is not None) is is_cause


# --- fleets -----------------------------------------------------------------------------------


def raw_of(**fields: Any) -> dict[str, Any]:
    metadata = {"name": "qwen", "namespace": "rl", "uid": "f-1", "generation": 4}
    spec = {"model": {"name": "qwen", "path": "/models/qwen"}}
    return {"metadata": metadata, "spec": spec} | fields


def test_a_new_fleet_has_an_empty_status() -> None:
    found = fleet_from(raw_of())

    assert (found.generation, found.status.observed_generation) == (4, -1)
    assert not found.deleting


def test_what_a_newer_resource_definition_adds_is_ignored() -> None:
    newer = raw_of(status={"target": "step-1", "later": {"a": 1}})
    newer["spec"]["later"] = True

    assert fleet_from(newer).status.target == "step-1"


def test_a_fleet_that_is_being_deleted_says_so() -> None:
    raw_fleet = raw_of()
    raw_fleet["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert fleet_from(raw_fleet).deleting


def test_what_is_no_fleet_is_an_error() -> None:
    with pytest.raises(ValidationError):
        fleet_from(raw_of(spec={"model": {"name": "qwen"}}))


# --- workers ----------------------------------------------------------------------------------


RUNNING = Running(verb=Verb.PAUSE, operation="o", version="step-2")
PREPARING = Running(verb=Verb.PREPARE, operation="o", version="step-2")
ENDING = replace(worker(), pod=pod(terminating=True))
SILENT = replace(worker(), reachable=False)


@pytest.mark.parametrize("subject", [ENDING, SILENT, Worker("qwen-0", 0)], ids=str)
def test_what_cannot_be_reached_has_proved_nothing(subject: Worker) -> None:
    assert (subject.stage, subject.proved, subject.is_open) == (Stage.DOWN, None, False)


@pytest.mark.parametrize(
    ("subject", "changing", "busy"),
    [
        (worker(), False, False),
        (worker(running=PREPARING), False, False),
        (worker(running=RUNNING), True, True),
        (worker(stage=Stage.PAUSED), True, False),
        (worker(stage=Stage.PROVED), True, False),
        (worker(stage=Stage.DOUBT), False, False),
        (worker(stage=Stage.CLOSED), False, False),
        (replace(worker(), calling=Verb.PREPARE), False, False),
        (replace(worker(), calling=Verb.RELOAD), True, True),
        (replace(SILENT, calling=Verb.RELOAD), True, True),
    ],
    ids=[
        "at rest",
        "prepares",
        "pauses",
        "paused by a caller",
        "proved, gate closed",
        "in doubt",
        "closed",
        "is asked to prepare",
        "is asked to change",
        "is asked to change and silent",
    ],
)
def test_which_workers_change_and_which_are_busy(
    subject: Worker, *, changing: bool, busy: bool
) -> None:
    assert (subject.is_changing, subject.is_busy) == (changing, busy)


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (worker(stage=Stage.DOUBT, failure=problem(Code.RELOAD_FAILED)), True),
        (worker(stage=Stage.DOUBT, failure=problem(Code.PROOF_FAILED)), True),
        (worker(stage=Stage.CLOSED, failure=problem(Code.PROOF_FAILED)), True),
        (worker(failure=problem(Code.PROOF_FAILED)), False),
        (worker(stage=Stage.CLOSED, failure=problem(Code.PAUSE_FAILED)), False),
        (worker(stage=Stage.DOUBT, failure=problem(Code.PROOF_FAILED, "step-3")), False),
        (worker(stage=Stage.DOUBT, failure=problem(Code.PROOF_FAILED, operation="old")), False),
        (worker(stage=Stage.DOUBT), False),
    ],
    ids=[
        "its reload",
        "its proof",
        "though its engine was replaced",
        "not if it serves",
        "not on the way there",
        "not another version",
        "not under another operation",
        "not if nothing is reported",
    ],
)
def test_a_version_failed_only_if_it_was_the_version_s_fault(
    subject: Worker, *, expected: bool
) -> None:
    assert subject.failed("step-2", "rollout-1") is expected


@pytest.mark.parametrize(
    ("version", "operation", "expected"),
    [("step-2", "rollout-1", True), ("step-3", "rollout-1", False), ("step-2", "old", False)],
)
def test_a_refusal_counts_for_the_operation_that_met_it(
    version: str, operation: str, *, expected: bool
) -> None:
    subject = worker(refusal=problem(Code.CHECKPOINT_INVALID))

    assert subject.refused(version, operation) is expected


def test_workers_beyond_the_replicas_are_not_wanted() -> None:
    seen = world(worker(0), worker(1), worker(2), replicas=2)

    assert [w.ordinal for w in seen.desired] == [0, 1]


def derived_in(work: Callable[[], object]) -> Counter[str]:
    """Count which of a worker's facts are computed, by their names."""
    facts = {
        name: one.func if isinstance(one, cached_property) else one.fget
        for name, one in vars(Worker).items()
        if isinstance(one, cached_property | property)
    }
    codes = {work.__code__: name for name, work in facts.items() if work is not None}
    counts: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            counts[codes[frame.f_code]] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts


def test_a_pass_derives_nothing_again_of_workers_that_did_not_change() -> None:
    found = [worker(n) for n in range(40)]
    first = world(*found, weightVersion="step-2", status=recorded("step-2", "Progressing"))

    def pass_over(seen: World) -> None:
        status_of(seen, plan(seen).rollout)

    assert derived_in(lambda: pass_over(first))["stage"] == len(found)
    assert not derived_in(lambda: pass_over(replace(first, moment=first.moment + 1)))

    changed = replace(found[7], report=report(prepared="step-2"))
    after = replace(first, workers=(*found[:7], changed, *found[8:]))
    assert set(derived_in(lambda: pass_over(after)).values()) == {1}
