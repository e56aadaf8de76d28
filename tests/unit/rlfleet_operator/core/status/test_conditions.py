"""Conditions, as kstatus and kubectl wait read them."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import CHECKPOINT_CODES, Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.worker_phase import complaint_of
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.status.conditions import MESSAGE_LIMIT, dated, verdicts
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.core.status.verdict import ConditionVerdict
from rlfleet_operator.crd.fleet_status import Condition
from tests.workers import MOMENT, pod, problem, recorded, worker, world

DONE = recorded("step-1", "Completed")
TO_2: dict[str, Any] = {"weightVersion": "step-2", "status": recorded("step-2", "Preparing")}


def conditions_of(seen: World) -> dict[str, ConditionVerdict]:
    return {verdict.type: verdict for verdict in verdicts(seen, current(seen))}


def reasons(seen: World) -> dict[str, str]:
    return {kind: verdict.reason for kind, verdict in conditions_of(seen).items()}


def starting(ordinal: int = 0) -> Worker:
    return worker(ordinal, Stage.CLOSED)


def broken(ordinal: int = 0, **fields: Any) -> Worker:
    return worker(ordinal, Stage.DOUBT, **fields)


def test_the_message_of_a_barrier_names_the_adapter_that_it_waits_for() -> None:
    adapting = replace(worker(1, prepared="step-2"), calling=Verb.ADAPT)
    seen = world(worker(0, prepared="step-2"), adapting, rollout={"strategy": "Barrier"}, **TO_2)

    assert conditions_of(seen)["Reconciling"].message.endswith(
        "; no worker pauses until qwen-1 has loaded its adapter"
    )


def test_a_paused_rollback_names_what_it_waits_for() -> None:
    back = recorded("step-2", "Preparing", reason="Rollback", asked="step-3", message="it failed")
    back["target"] = "step-3"
    seen = world(
        worker(0, proved="step-3", prepared="step-2"),
        worker(1, proved="step-2"),
        weightVersion="step-3",
        status=back,
        rollout={"paused": True},
    )

    held = conditions_of(seen)["Reconciling"]

    assert held.reason == "Paused"
    assert held.message.endswith("; waiting: rollout.paused is true")


CASES: dict[str, tuple[World, dict[str, str]]] = {
    "at rest": (
        world(worker(0), worker(1), status=DONE),
        {"Ready": "AllServing", "WeightsSynced": "Proved"},
    ),
    "a trainer drives": (
        world(worker(0), worker(1), weightVersion=None),
        {"Ready": "AllServing", "WeightsSynced": "Proved"},
    ),
    "a trainer has updated one worker": (
        world(worker(0), worker(1, proved="step-9"), weightVersion=None),
        {"Ready": "MixedVersions", "WeightsSynced": "MixedVersions"},
    ),
    "one that serves cannot be asked what": (
        world(worker(0), replace(worker(1), reachable=False, report=None), status=DONE),
        {"Ready": "MixedVersions", "WeightsSynced": "Behind", "Reconciling": "CatchingUp"},
    ),
    "scaled to zero": (
        world(replicas=0, status=DONE),
        {"Ready": "ScaledToZero", "WeightsSynced": "Proved"},
    ),
    "starting": (
        world(worker(0), starting(1), status=DONE),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Behind",
            "Reconciling": "CatchingUp",
        },
    ),
    "rolling out": (
        world(worker(0, proved="step-2"), worker(1), **TO_2),
        {"Ready": "MixedVersions", "WeightsSynced": "Behind", "Reconciling": "RollingOut"},
    ),
    "a worker too many": (
        world(worker(0), worker(1), replicas=1, status=DONE),
        {"Ready": "AllServing", "WeightsSynced": "Proved", "Reconciling": "Scaling"},
    ),
    "an outdated pod": (
        world(replace(worker(0), pod=pod(template_hash="old")), status=DONE),
        {"Ready": "AllServing", "WeightsSynced": "Proved", "Reconciling": "Scaling"},
    ),
    "a trainer changes a worker": (
        world(worker(0, Stage.LOADED), worker(1), status=DONE),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Behind",
            "Reconciling": "CatchingUp",
        },
    ),
    "an object of ours is refused": (
        replace(world(worker(0), status=DONE), trouble="Pod exists"),
        {"Ready": "AllServing", "WeightsSynced": "Proved", "Stalled": "ObjectRefused"},
    ),
    "a pod lost its annotation": (
        world(replace(worker(0), pod=pod(template_hash="")), status=DONE),
        {"Ready": "AllServing", "WeightsSynced": "Proved", "Stalled": "ObjectRefused"},
    ),
    "a pod that terminates lost its annotation": (
        world(
            replace(worker(0), pod=pod(template_hash="", terminating=True)), worker(1), status=DONE
        ),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Behind",
            "Reconciling": "CatchingUp",
        },
    ),
    "the version failed on the first worker": (
        world(broken(0, failure=problem(Code.PROOF_FAILED)), worker(1), **TO_2),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Quarantined",
            "Stalled": "RolloutFailed",
        },
    ),
    "a worker in doubt that is still led back": (
        world(
            broken(0, failure=problem(Code.PAUSE_FAILED, "step-1", "rollout-2")),
            worker(1, proved="step-1"),
            weightVersion="step-2",
            status=recorded(
                "step-1", "Updating", id=2, asked="step-2", reason="Rollback", **{"from": "step-2"}
            )
            | {"target": "step-2"},
        ),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Quarantined",
            "Reconciling": "RollingBack",
        },
    ),
    "a worker failed alone": (
        world(broken(0, failure=problem(Code.PROOF_FAILED)), worker(1, proved="step-2"), **TO_2),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Quarantined",
            "Stalled": "WorkersQuarantined",
        },
    ),
    "a worker failed alone and others continue": (
        world(
            broken(0, failure=problem(Code.PROOF_FAILED)),
            worker(1, proved="step-2"),
            worker(2),
            **TO_2,
        ),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Quarantined",
            "Reconciling": "RollingOut",
        },
    ),
    "a refused checkpoint waits for a change under way": (
        world(
            worker(0, refusal=problem(Code.CHECKPOINT_INVALID)), worker(1, Stage.LOADING), **TO_2
        ),
        {
            "Ready": "InsufficientWorkers",
            "WeightsSynced": "Behind",
            "Reconciling": "RollingOut",
        },
    ),
}


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES)
def test_the_conditions_of_a_fleet(seen: World, expected: dict[str, str]) -> None:
    assert reasons(seen) == expected


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES)
def test_what_is_bad_when_true_is_absent_while_it_is_false(
    seen: World, expected: dict[str, str]
) -> None:
    assert all(
        conditions_of(seen)[kind].is_true for kind in expected.keys() & {"Reconciling", "Stalled"}
    )
    assert not {"Reconciling", "Stalled"} <= expected.keys()


def silent(ordinal: int = 0) -> Worker:
    """Return a worker with traffic whose sidecar the operator cannot reach."""
    return replace(worker(ordinal), reachable=False, silence=f"{ordinal}: ConnectTimeout")


@pytest.mark.parametrize("late_s", [0.0, 1e6])
def test_a_fleet_is_behind_because_its_sidecars_do_not_answer(late_s: float) -> None:
    """As of a NetworkPolicy: its workers serve on, so that nothing else is wrong with them."""
    seen = world(silent(0), silent(1), **TO_2)

    found = conditions_of(replace(seen, moment=MOMENT + late_s))

    assert found["WeightsSynced"].message.endswith("proved step-2; qwen-0: 0: ConnectTimeout")
    assert found["Ready"].is_true
    if late_s:
        assert found["Stalled"].reason == "ProgressDeadlineExceeded"
        assert found["Stalled"].message.endswith("; qwen-0: 0: ConnectTimeout")


@pytest.mark.parametrize(
    ("calling", "serving", "reason"),
    [
        (None, "step-1", "AllServing"),
        (Verb.PREPARE, "step-1", "AllServing"),
        (Verb.RELOAD, "an unknown version and step-1", "MixedVersions"),
    ],
)
def test_a_silent_worker_may_have_changed_by_a_command_without_an_answer(
    calling: Verb | None, serving: str, reason: str
) -> None:
    seen = world(replace(silent(0), calling=calling), worker(1), **TO_2)

    ready = conditions_of(seen)["Ready"]

    assert (ready.reason, ready.message) == (reason, f"2 of 2 workers serve {serving}")
    assert status_of(seen, current(seen)).serving == ("step-1" if reason == "AllServing" else "")


@pytest.mark.parametrize("late_s", [0.0, 1e6])
def test_a_fleet_is_behind_because_a_worker_fails_to_change_and_serves_on(late_s: float) -> None:
    """As with a request that a pause of mode Wait awaits, or on a full disk."""
    failed = worker(1, failure=problem(Code.PAUSE_FAILED))
    seen = world(worker(0, proved="step-2"), failed, **TO_2)

    found = conditions_of(replace(seen, moment=MOMENT + late_s))

    assert found["WeightsSynced"].message.endswith(
        "1 of 2 workers proved step-2; qwen-1: PauseFailed: why"
    )
    assert found["Ready"].is_true
    if late_s:
        assert found["Stalled"].message.endswith("; qwen-1: PauseFailed: why")


def test_a_failure_in_an_earlier_rollout_is_not_why_a_fleet_is_behind() -> None:
    failed = worker(0, failure=problem(Code.PAUSE_FAILED, operation="rollout-0"))

    found = conditions_of(world(failed, **TO_2))

    assert found["WeightsSynced"].message == "0 of 1 workers proved step-2"


def test_a_worker_without_traffic_is_named_before_a_silent_one() -> None:
    broken_one = broken(1, failure=problem(Code.PROOF_FAILED, "step-1"))

    found = conditions_of(world(silent(0), broken_one, **TO_2))

    assert "; qwen-1: ProofFailed" in found["WeightsSynced"].message
    assert "qwen-0" not in found["Ready"].message


@pytest.mark.parametrize("code", sorted(CHECKPOINT_CODES))
def test_a_rejected_checkpoint_is_stalled_with_its_code_and_workers_still_serve(code: Code) -> None:
    found = conditions_of(world(worker(0, refusal=problem(code)), worker(1), **TO_2))

    assert (found["Stalled"].reason, found["Stalled"].message) == (
        code,
        "step-2 rejected by qwen-0: why",
    )
    assert found["Ready"].is_true


def test_status_stays_while_a_worker_tries_two_versions_that_it_rejects_in_turn() -> None:
    new, old = (problem(Code.ENGINE_UNFAITHFUL, version) for version in ("step-2", "step-1"))
    told = []
    for last in (new, old):
        trying = replace(worker(0, Stage.CLOSED, refusal=last), rejections=(new, old))
        seen = world(trying, worker(1), **TO_2)
        told.append((conditions_of(seen), complaint_of(trying, seen)))

    assert told[0] == told[1]
    assert told[0][0]["Stalled"].reason == Code.ENGINE_UNFAITHFUL
    assert told[0][0]["Stalled"].message == "step-2 rejected by qwen-0: why"


def test_a_refusal_of_an_earlier_rollout_stalls_nothing() -> None:
    old = problem(Code.CHECKPOINT_INVALID, operation="rollout-0")

    assert "Stalled" not in conditions_of(world(worker(0, refusal=old), **TO_2))


@pytest.mark.parametrize(("after_s", "expected"), [(59, False), (60, True), (6000, True)])
def test_a_rollout_that_does_not_end_is_stalled_by_its_deadline(
    after_s: int, *, expected: bool
) -> None:
    seen = world(worker(0), rollout={"progressDeadlineSeconds": 60}, **TO_2)
    found = conditions_of(replace(seen, moment=MOMENT + after_s))

    assert ("Stalled" in found) is expected
    if expected:
        assert found["Stalled"].reason == "ProgressDeadlineExceeded"


def test_a_late_rollout_that_has_reached_every_worker_is_not_stalled() -> None:
    reached = world(worker(0, proved="step-2"), rollout={"progressDeadlineSeconds": 60}, **TO_2)

    assert "Stalled" not in conditions_of(replace(reached, moment=MOMENT + 6000))


def test_the_message_names_the_first_worker_with_a_problem() -> None:
    seen = world(
        worker(0), broken(1, failure=problem(Code.RELOAD_FAILED)), starting(2), status=DONE
    )

    assert conditions_of(seen)["Ready"].message == "1 of 3 workers ready; qwen-1: ReloadFailed: why"


def test_a_worker_that_is_proved_and_not_routable_is_not_synced() -> None:
    unready = replace(worker(1), pod=pod(1, ready=False))

    assert not conditions_of(world(worker(0), unready, status=DONE))["WeightsSynced"].is_true


# --- time -------------------------------------------------------------------------------------


def condition(status: str, **fields: Any) -> Condition:
    known = {
        "type": "Ready",
        "status": status,
        "reason": "R",
        "message": "m",
        "last_transition_time": "then",
        "observed_generation": 1,
    }
    return Condition.model_validate(known | fields)


@pytest.mark.parametrize(
    ("before", "expected"),
    [([], "now"), ([condition("True")], "then"), ([condition("False")], "now")],
    ids=["new", "the same", "flipped"],
)
def test_only_a_flip_changes_the_time(before: list[Condition], expected: str) -> None:
    found = [ConditionVerdict("Ready", is_true=True, reason="Other", message="another message")]
    (made,) = dated(found, before, generation=2, now="now")

    assert made == condition(
        "True",
        reason="Other",
        message="another message",
        last_transition_time=expected,
        observed_generation=2,
    )


def test_a_condition_that_is_gone_leaves_nothing() -> None:
    assert dated([], [condition("True", type="Stalled")], generation=1, now="now") == []


def test_a_message_has_an_end() -> None:
    found = [ConditionVerdict("Ready", is_true=False, reason="R", message="x" * 9999)]
    (made,) = dated(found, [], generation=1, now="now")

    assert len(made.message) == MESSAGE_LIMIT


def test_an_untested_release_is_named_while_it_serves() -> None:
    said = {"key": "k", "engine": "vLLM 0.33.0 (cpu)", "passed": True}
    seen = [worker(0, self_test=said | {"is_tested": tested}) for tested in (True, False)]
    known, unknown = (conditions_of(world(one)) for one in seen)

    assert "EngineUntested" not in known
    found = unknown["EngineUntested"]
    assert (found.reason, found.is_true) == ("UntestedRelease", True)
    assert found.message == (
        "vLLM 0.33.0 (cpu) is untested with rlfleet; its reload passed the self-test"
    )
