"""Canary, partition, pause, failure policies: which workers change, and what a failure does."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.cohorts import hold_left_s
from rlfleet_operator.core.simulation.model_fleet import carried_out, recorded, run, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from tests import fleets
from tests.workers import problem, report

BREAKS = {"bad": Effect.BREAKS}


def versions(seen: World) -> list[str | None]:
    return [worker.proved for worker in seen.workers]


def phase(seen: World) -> str:
    return seen.fleet.status.rollout.phase if seen.fleet.status.rollout else ""


def reasons(seen: World) -> dict[str, str]:
    return {c.type: c.reason for c in seen.fleet.status.conditions}


def fleet(replicas: int = 4, **rollout: Any) -> World:
    """Return a fleet at rest that serves step-1."""
    spec = {"replicas": replicas, "weightVersion": "step-1", "rollout": rollout}
    return fleets.at_rest(fleets.world(spec))


def asking(seen: World, version: str, **rollout: Any) -> World:
    rules = seen.fleet.spec.rollout.model_dump(by_alias=True) | rollout
    made = RolloutSpec.model_validate(rules)
    return fleets.asking(seen, weight_version=version, rollout=made)


def at_rest(seen: World, fates: dict[str, Effect] | None = None) -> World:
    """Return the end, with the status that it has come to."""
    end = fleets.at_rest(seen, fates)
    return recorded(end, plan(end))


# --- partition -----------------------------------------------------------------------------------


def test_a_partition_keeps_the_first_workers_at_their_version() -> None:
    seen = at_rest(asking(fleet(), "step-2", partition=2))

    assert versions(seen) == ["step-1", "step-1", "step-2", "step-2"]
    assert phase(seen) == "Partitioned"
    assert reasons(seen)["WeightsSynced"] == "Partitioned"
    assert "Reconciling" not in reasons(seen)


def test_a_lower_partition_continues_the_same_rollout() -> None:
    half = at_rest(asking(fleet(), "step-2", partition="50%"))
    seen = at_rest(asking(half, "step-2", partition=0))

    assert versions(seen) == ["step-2"] * 4
    assert (phase(seen), reasons(seen)["WeightsSynced"]) == ("Completed", "Proved")
    assert seen.fleet.status.rollout is not None
    assert seen.fleet.status.rollout.id == 2


def test_a_replaced_worker_below_the_partition_comes_back_at_the_old_version() -> None:
    seen = at_rest(asking(fleet(), "step-2", partition=2))
    gone = replace(seen.workers[0], pod=None, report=None)

    assert versions(at_rest(replace(seen, workers=(gone, *seen.workers[1:])))) == versions(seen)


# --- paused --------------------------------------------------------------------------------------


def test_a_paused_rollout_prepares_and_takes_no_worker_out() -> None:
    seen = at_rest(asking(fleet(), "step-2", paused=True))

    assert versions(seen) == ["step-1"] * 4
    assert all(w.report and w.report.prepared == "step-2" for w in seen.workers)
    assert (phase(seen), reasons(seen)["Reconciling"]) == ("Paused", "Paused")


def test_a_rollout_that_is_paused_halfway_leaves_no_worker_paused() -> None:
    seen = asking(fleet(maxUnavailable=1), "step-2")
    for _ in range(4):
        seen = after_one_pass(seen)
    seen = at_rest(asking(seen, "step-2", paused=True))

    assert 0 < versions(seen).count("step-2") < 4
    assert all(w.stage is Stage.OPEN for w in seen.workers)
    assert versions(at_rest(asking(seen, "step-2", paused=False))) == ["step-2"] * 4


def after_one_pass(seen: World) -> World:
    seen = settled(seen)
    step = plan(seen)
    seen = recorded(seen, step)
    for action in step.actions:
        seen = carried_out(seen, action, {})
    return replace(seen, moment=seen.moment + 60)


def test_time_held_does_not_count_for_the_deadline() -> None:
    held = at_rest(asking(fleet(), "step-2", paused=True, progressDeadlineSeconds=100))
    held = replace(held, moment=held.moment + 10_000)
    still = recorded(held, plan(held))
    moving = asking(held, "step-2", paused=False)
    moving = recorded(moving, plan(moving))

    assert "Stalled" not in reasons(still)
    assert "Stalled" not in reasons(moving)
    assert moving.fleet.status.rollout is not None
    assert moving.fleet.status.rollout.held_seconds >= 10_000


# --- canary --------------------------------------------------------------------------------------


def test_canaries_change_first_and_the_others_follow() -> None:
    seen = asking(fleet(maxUnavailable=4), "step-2", strategy="Canary", canary={"count": 2})
    first = next(w for w in walk(seen) if plans_updates(w))

    assert plans_updates(first) == {"qwen-0", "qwen-1"}
    assert versions(at_rest(seen)) == ["step-2"] * 4


def walk(seen: World) -> list[World]:
    return [step.world for step in run(seen, {})]


def plans_updates(seen: World) -> set[str]:
    return {a.worker for a in plan(seen).actions if isinstance(a, Update)}


def test_a_manual_canary_waits_for_the_word_that_names_the_version() -> None:
    canary = {"count": 1, "promote": "Manual"}
    held = at_rest(asking(fleet(), "step-2", strategy="Canary", canary=canary))

    assert versions(held) == ["step-2", "step-1", "step-1", "step-1"]
    assert (phase(held), reasons(held)["Reconciling"]) == ("CanaryHold", "CanaryHold")
    assert all(w.report and w.report.prepared == "step-2" for w in held.workers)

    other = canary | {"promotedVersion": "step-1"}
    assert versions(at_rest(asking(held, "step-2", canary=other))) == versions(held)
    named = canary | {"promotedVersion": "step-2"}
    assert versions(at_rest(asking(held, "step-2", canary=named))) == ["step-2"] * 4


def test_canaries_serve_alone_for_hold_seconds() -> None:
    canary = {"count": 1, "holdSeconds": 10_000}
    held = at_rest(asking(fleet(), "step-2", strategy="Canary", canary=canary))
    later = replace(held, moment=held.moment + 10_000)

    assert versions(held).count("step-2") == 1
    assert versions(at_rest(later)) == ["step-2"] * 4


LOST: dict[str, Callable[[Worker], Worker]] = {
    "its pod is gone": lambda w: replace(w, pod=None, report=None),
    "its pod ends": lambda w: replace(w, pod=w.pod and replace(w.pod, terminating=True)),
    "its engine crashed": lambda w: replace(
        w, pod=w.pod and replace(w.pod, ready=False), report=report(Stage.DOWN)
    ),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_canary_that_is_lost_in_its_hold_promotes_nothing(
    lose: Callable[[Worker], Worker],
) -> None:
    canary = {"count": 1, "holdSeconds": 10_000}
    held = at_rest(asking(fleet(), "step-2", strategy="Canary", canary=canary))
    lost = replace(held, workers=(lose(held.workers[0]), *held.workers[1:]))

    told = recorded(lost, plan(lost))
    later = replace(told, moment=told.moment + 10_000)

    assert told.fleet.status.rollout is not None
    assert told.fleet.status.rollout.canary_since is None
    assert plans_updates(later) == set()


def test_a_canary_that_misses_a_question_is_held_no_longer() -> None:
    canary = {"count": 1, "holdSeconds": 10_000}
    held = at_rest(asking(fleet(), "step-2", strategy="Canary", canary=canary))
    silent = replace(held.workers[0], reachable=False)

    told = recorded(missed := replace(held, workers=(silent, *held.workers[1:])), plan(missed))

    assert told.fleet.status.rollout is not None
    assert held.fleet.status.rollout is not None
    assert told.fleet.status.rollout.canary_since == held.fleet.status.rollout.canary_since


def test_after_promotion_the_message_names_only_the_hold() -> None:
    canary = {"count": 1, "holdSeconds": 10_000, "promote": "Manual"}
    held = at_rest(asking(fleet(), "step-2", strategy="Canary", canary=canary))
    named = at_rest(asking(held, "step-2", canary=canary | {"promotedVersion": "step-2"}))

    assert reconciling(held).endswith("set rollout.canary.promotedVersion to step-2")
    assert reconciling(named).endswith("canaries serve: waiting for rollout.canary.holdSeconds")


def reconciling(seen: World) -> str:
    return next(c.message for c in seen.fleet.status.conditions if c.type == "Reconciling")


@pytest.mark.parametrize("policy", ["Quarantine", "Hold", "Rollback"])
def test_a_canary_that_fails_takes_no_other_worker_out(policy: str) -> None:
    rules: dict[str, Any] = {"strategy": "Canary", "onFailure": policy, "maxFailed": 3}
    seen = at_rest(asking(fleet(maxUnavailable=4), "bad", **rules), BREAKS)

    others = versions(seen)[1:]
    assert others == ["step-1"] * 3
    assert all(
        w.report and w.report.last_change and w.report.last_change.version == "step-1"
        for w in seen.workers[1:]
    )


# --- what a failure does -------------------------------------------------------------------------


def test_with_quarantine_the_fleet_keeps_its_version_and_the_failed_worker_is_out() -> None:
    seen = at_rest(asking(fleet(), "bad", onFailure="Quarantine"), BREAKS)

    assert versions(seen) == [None, "step-1", "step-1", "step-1"]
    assert (phase(seen), reasons(seen)["Stalled"]) == ("Failed", "RolloutFailed")


def test_with_hold_everybody_stays_as_they_are() -> None:
    seen = at_rest(asking(fleet(), "bad", onFailure="Hold"), BREAKS)

    assert versions(seen) == [None, "step-1", "step-1", "step-1"]
    assert (phase(seen), reasons(seen)["Stalled"]) == ("Held", "RolloutHeld")


def test_with_rollback_every_worker_is_back_at_the_old_version() -> None:
    seen = at_rest(asking(fleet(), "bad", onFailure="Rollback"), BREAKS)
    status = seen.fleet.status

    assert versions(seen) == ["step-1"] * 4
    assert (phase(seen), reasons(seen)["Stalled"]) == ("RolledBack", "RolledBack")
    assert reasons(seen)["WeightsSynced"] == "RolledBack"
    assert status.target == "bad"
    assert status.rollout is not None
    assert (status.rollout.reason, status.rollout.from_version, status.rollout.to) == (
        "Rollback",
        "bad",
        "step-1",
    )
    assert "qwen-0" in status.rollout.message
    assert [(h.to, h.result) for h in status.history] == [
        ("bad", "Failed"),
        ("step-1", "Completed"),
    ]


def test_a_version_that_was_rolled_back_is_retried_only_after_a_new_request() -> None:
    seen = at_rest(asking(fleet(), "bad", onFailure="Rollback"), BREAKS)

    assert versions(at_rest(fleets.asking(seen, replicas=5))) == ["step-1"] * 5
    assert versions(at_rest(asking(seen, "bad", restartId="again"))) == ["bad"] * 4
    assert versions(at_rest(asking(seen, "step-3"))) == ["step-3"] * 4


def test_a_first_version_that_fails_leaves_nothing_to_go_back_to() -> None:
    spec = {"replicas": 2, "weightVersion": "bad", "rollout": {"onFailure": "Rollback"}}
    seen = at_rest(fleets.world(spec), BREAKS)

    assert phase(seen) == "Failed"
    assert not any(w.is_open for w in seen.workers)


def one_fails(seen: World, ordinal: int, version: str) -> World:
    """Return the world in which a worker has failed a version that others hold."""
    rollout = seen.fleet.status.rollout
    operation = f"rollout-{rollout.id if rollout else 0}"
    return fleets.changed(
        seen,
        ordinal,
        stage=Stage.DOUBT,
        proved=None,
        installed=version,
        failure=problem(Code.PROOF_FAILED, version, operation),
    )


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"onFailure": "Quarantine"}, ["step-2", None, "step-2", "step-2"]),
        ({"onFailure": "Quarantine", "maxFailed": 0}, ["step-2", None, "step-1", "step-1"]),
        ({"onFailure": "Hold"}, ["step-2", None, "step-1", "step-1"]),
        ({"onFailure": "Hold", "maxFailed": 1}, ["step-2", None, "step-2", "step-2"]),
        ({"onFailure": "Rollback"}, ["step-1"] * 4),
        ({"onFailure": "Rollback", "maxFailed": "25%"}, ["step-2", None, "step-2", "step-2"]),
    ],
)
def test_one_failure_of_a_version_that_others_hold(
    rules: dict[str, Any], expected: list[str | None]
) -> None:
    seen = asking(fleet(maxUnavailable=1), "step-2", **rules)
    while versions(seen).count("step-2") == 0:
        seen = after_one_pass(seen)
    seen = at_rest(one_fails(seen, 1, "step-2"))

    assert versions(seen) == expected


def test_a_version_that_held_is_acquitted_though_its_worker_misses_a_question() -> None:
    seen = asking(fleet(maxUnavailable=1), "step-2")
    while versions(seen).count("step-2") == 0:
        seen = after_one_pass(seen)
    silent = replace(seen.workers[0], reachable=False)
    failed = one_fails(replace(seen, workers=(silent, *seen.workers[1:])), 1, "step-2")

    rollout = plan(failed).rollout

    assert rollout is not None
    assert not rollout.is_stopped


# --- order ---------------------------------------------------------------------------------------


def stepped(seen: World, version: str, step: int | None, run: str = "a") -> World:
    weights = seen.fleet.spec.weights
    assert weights is not None
    made = weights.model_copy(update={"run_id": run, "step": step})
    return fleets.asking(seen, weight_version=version, weights=made)


def test_a_step_back_within_a_run_is_not_rolled_out() -> None:
    seen = at_rest(stepped(fleet(), "step-5", 5))
    back = at_rest(stepped(seen, "step-4", 4))
    other = at_rest(stepped(seen, "first", 0, run="b"))
    meant = at_rest(asking(stepped(seen, "step-4", 4), "step-4", allowRewind=True))

    assert versions(back) == ["step-5"] * 4
    assert reasons(back)["Stalled"] == "StepRewound"
    assert versions(other) == ["first"] * 4
    assert versions(meant) == ["step-4"] * 4


def test_a_b_a_are_three_rollouts() -> None:
    seen = fleet()
    for version in ("step-2", "step-1"):
        seen = at_rest(asking(seen, version))

    assert seen.fleet.status.rollout is not None
    assert seen.fleet.status.rollout.id == 3
    assert [(h.id, h.to, h.result) for h in seen.fleet.status.history] == [
        (2, "step-2", "Completed"),
        (1, "step-1", "Completed"),
    ]


def test_history_keeps_at_most_history_limit() -> None:
    seen = fleets.asking(fleet(), history_limit=2)
    for version in ("a", "b", "c", "d"):
        seen = at_rest(asking(seen, version))

    assert [h.to for h in seen.fleet.status.history] == ["c", "b"]


def test_a_superseded_rollout_is_in_history() -> None:
    seen = asking(fleet(), "step-2", paused=True)
    seen = at_rest(asking(at_rest(seen), "step-3", paused=False))

    assert seen.fleet.status.history[0].result == "Superseded"


def test_a_rollout_right_after_another_waits_before_it_takes_workers_out() -> None:
    seen = after_one_pass(asking(fleet(), "step-2"))
    began = seen.moment
    seen = after_one_pass(asking(replace(seen, moment=began), "step-3"))
    seen = replace(seen, moment=began)
    for ordinal in range(4):
        seen = fleets.changed(seen, ordinal, prepared="step-3")

    assert hold_left_s(seen) == 3
    assert plans_updates(seen) == set()
    assert plans_updates(replace(seen, moment=began + 3)) == {"qwen-0"}
    # The target left for a moment that no status recorded.
    back = replace(seen, asked_since=began + 2)
    assert hold_left_s(replace(back, moment=began + 3)) == 2
    assert plans_updates(replace(back, moment=began + 3)) == set()
    assert plans_updates(replace(back, moment=began + 5)) == {"qwen-0"}


def test_a_rollout_that_need_not_wait_begins_although_its_target_is_new() -> None:
    seen = after_one_pass(asking(fleet(), "step-2"))
    for ordinal in range(4):
        seen = fleets.changed(seen, ordinal, prepared="step-2")

    assert plans_updates(replace(seen, asked_since=seen.moment)) == {"qwen-0"}


def test_a_rollout_after_one_that_rested_begins_at_once() -> None:
    rested = fleet()
    seen = after_one_pass(asking(replace(rested, moment=rested.moment + 10), "step-2"))

    assert seen.fleet.status.rollout is not None
    assert seen.fleet.status.rollout.not_before is None


# --- dry run -------------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing() -> None:
    seen = at_rest(asking(fleet(), "step-2", dryRun=True))

    assert versions(seen) == ["step-1"] * 4
    assert reasons(seen)["WeightsSynced"] == "DryRun"
    assert seen.fleet.status.rollout is not None
    assert seen.fleet.status.rollout.id == 1
    assert versions(at_rest(asking(seen, "step-2", dryRun=False))) == ["step-2"] * 4


def test_a_dry_run_of_a_first_version_serves_nothing() -> None:
    seen = at_rest(
        fleets.world({"replicas": 2, "weightVersion": "step-1", "rollout": {"dryRun": True}})
    )

    assert versions(seen) == [None] * 2
    assert not any(w.pod and w.pod.ready for w in seen.workers)
    assert reasons(seen)["WeightsSynced"] == "DryRun"
    assert versions(at_rest(asking(seen, "step-1", dryRun=False))) == ["step-1"] * 2


def test_a_late_joiner_of_a_dry_run_follows_what_its_trainer_had_loaded() -> None:
    by_trainer = fleets.at_rest(fleets.world({"replicas": 2}))
    seen = fleets.changed(by_trainer, 0, proved="step-7")
    gone = replace(seen.workers[1], pod=None, report=None)
    seen = replace(seen, workers=(seen.workers[0], gone))

    assert versions(at_rest(asking(seen, "step-8", dryRun=True))) == ["step-7"] * 2


def test_a_dry_run_of_what_is_served_hides_nothing() -> None:
    seen = fleets.asking(fleet(), rollout=RolloutSpec.model_validate({"dryRun": True}))
    broken = replace(seen.workers[0], report=report(Stage.DOUBT))
    found = replace(seen, workers=(broken, *seen.workers[1:]))

    assert reasons(recorded(found, plan(found)))["WeightsSynced"] == "Quarantined"
