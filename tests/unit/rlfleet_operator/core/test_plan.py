"""The planner, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.proof import Proof
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import CreatePod, DeletePod, MarkPod, Prepare, Update
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.simulation.model_fleet import recorded, settled
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.core.timers import due_in_s
from tests import fleets, workers
from tests.proofs import proof


def of(kind: type, seen: World) -> list[object]:
    """Return the planned actions of one kind."""
    return [action for action in plan(seen).actions if isinstance(action, kind)]


def versions(seen: World) -> list[str | None]:
    return [worker.proved for worker in seen.workers]


def rolling(replicas: int = 4, limit: int | str = 1) -> World:
    """Return a fleet that serves step-1."""
    spec = {"replicas": replicas, "weightVersion": "step-1", "rollout": {"maxUnavailable": limit}}
    return fleets.at_rest(fleets.world(spec))


def test_a_new_fleet_gets_every_missing_pod_at_once() -> None:
    assert of(CreatePod, settled(fleets.world({"replicas": 3}))) == [
        CreatePod(0),
        CreatePod(1),
        CreatePod(2),
    ]


def test_a_new_fleet_ends_with_every_worker_at_the_declared_version() -> None:
    assert versions(rolling(3)) == ["step-1"] * 3


def test_a_fleet_without_a_version_serves_the_base_model() -> None:
    seen = fleets.at_rest(fleets.world({"replicas": 2, "weights": None}))

    assert versions(seen) == ["base", "base"]


def test_workers_get_no_command_before_status_records_the_rollout() -> None:
    asked = fleets.asking(rolling(), weight_version="step-2")

    assert plan(asked).rollout is not None
    assert of(Prepare, asked) == []
    assert len(of(Prepare, recorded(asked, plan(asked)))) == 4


def test_every_serving_worker_prepares_before_any_is_paused() -> None:
    asked = fleets.asking(rolling(), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    some = asked
    for ordinal in range(3):
        some = fleets.changed(some, ordinal, prepared="step-2")

    assert of(Update, some) == []
    assert len(of(Update, fleets.changed(some, 3, prepared="step-2"))) == 1


@pytest.mark.parametrize(("limit", "batch"), [(1, 1), (2, 2), ("50%", 2), ("100%", 4), ("1%", 1)])
def test_a_batch_is_as_large_as_max_unavailable(limit: int | str, batch: int) -> None:
    asked = fleets.asking(rolling(4, limit), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    for ordinal in range(4):
        asked = fleets.changed(asked, ordinal, prepared="step-2")

    assert len(of(Update, asked)) == batch


def test_a_worker_in_mid_change_is_charged_to_the_batch() -> None:
    asked = fleets.asking(rolling(4, 2), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    for ordinal in range(4):
        asked = fleets.changed(asked, ordinal, prepared="step-2")
    asked = fleets.changed(asked, 0, stage=Stage.PAUSED)
    busy = replace(asked.workers[0], calling=Verb.RELOAD)
    asked = replace(asked, workers=(busy, *asked.workers[1:]))

    assert len(of(Update, asked)) == 1


UNSURE = {
    "its pod is not ready, and its report does not say so yet": (
        {"calling": Verb.RELOAD},
        {"ready": False},
    ),
    "it does not answer us, and serves for all that is known": ({"reachable": False}, {}),
    "it got a command, and has not answered since": (
        {"reachable": False, "calling": Verb.RELOAD},
        {"ready": False},
    ),
}
"""What the operator may know of a worker that is in a change all the same."""


@pytest.mark.parametrize(("known", "pod"), UNSURE.values(), ids=UNSURE)
def test_a_worker_that_may_be_in_a_change_is_charged_to_the_batch(
    known: dict[str, Any], pod: dict[str, Any]
) -> None:
    serving = [
        replace(workers.worker(n, prepared="step-2"), calling=None, retry_at=0.0) for n in range(2)
    ]
    first = serving[0]
    assert first.pod is not None
    unsure = replace(first, pod=replace(first.pod, **pod), **known)
    there = workers.worker(2, proved="step-2")
    status = workers.recorded("step-2", "Preparing")
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}

    assert len(of(Update, workers.world(*serving, there, status=status, **asked))) == 1
    assert of(Update, workers.world(unsure, serving[1], there, status=status, **asked)) == []


@pytest.mark.parametrize(
    ("version", "since_s", "reachable", "expected"),
    [
        ("step-2", 15.0, True, 0),
        # Its sidecar restarts.
        ("step-2", 15.0, False, 0),
        ("step-2", 61.0, True, 1),
        # By a clock that was set back.
        ("step-2", -3600.0, True, 1),
        # It is due itself, and may be broken.
        ("step-1", 15.0, True, 1),
    ],
)
def test_a_changed_worker_is_charged_to_the_batch_until_its_pod_is_ready_again(
    version: str, since_s: float, *, reachable: bool, expected: int
) -> None:
    status = workers.recorded("step-2", "Updating") | {"replacing": []}
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}
    done = workers.worker(0, proved=version, prepared="step-2")
    assert done.pod is not None
    late = replace(done.pod, ready=False, ready_changed_at=workers.MOMENT - since_s)
    others = [workers.worker(1, prepared="step-2"), workers.worker(2, proved="step-2")]

    unready = replace(done, pod=late, reachable=reachable)
    seen = workers.world(unready, *others, status=status, **asked)

    assert len(of(Update, seen)) == expected


UNHEARD: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "it has not answered the new leader": ({"report": None}, {}, 0),
    "it no longer answers": ({}, {}, 0),
    "an earlier driver's command may come": ({"reachable": True, "calling": Verb.RELOAD}, {}, 0),
    "its silence has lasted": ({"silence": "sidecar does not answer"}, {}, 1),
    "it answers": ({"reachable": True}, {}, 1),
    "its containers do not run yet": ({"report": None}, {"phase": "Pending"}, 1),
    "its pod has no address": ({"report": None}, {"address": None}, 1),
    "its pod ends": ({}, {"terminating": True}, 1),
}
"""Of a worker that is out of traffic, and what the batch may have."""


@pytest.mark.parametrize(("known", "pod", "expected"), UNHEARD.values(), ids=UNHEARD)
def test_an_unproved_version_waits_for_workers_that_may_have_failed(
    known: dict[str, Any], pod: dict[str, Any], expected: int
) -> None:
    status = workers.recorded("step-2", "Preparing") | {"replacing": []}
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}
    first = workers.worker(0, Stage.DOWN, prepared="step-2")
    assert first.pod is not None
    unheard = replace(first, pod=replace(first.pod, **pod), **({"reachable": False} | known))
    others = [workers.worker(1, prepared="step-2"), workers.worker(2, proved="step-2")]

    nowhere = workers.world(unheard, others[0], status=status, **asked)
    assert len(of(Update, nowhere)) == expected
    elsewhere = workers.world(unheard, *others, status=status, **asked)
    assert len(of(Update, elsewhere)) == 1


def test_a_worker_whose_pod_ends_is_charged_to_no_batch() -> None:
    """It may stand so for as long as its node is lost."""
    seen = [workers.worker(n, prepared="step-2") for n in range(2)]
    assert seen[0].pod is not None
    ending = replace(seen[0].pod, terminating=True, ready=False)
    lost = replace(seen[0], pod=ending, reachable=False, calling=Verb.RELOAD)
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}

    status = workers.recorded("step-2", "Preparing") | {"replacing": []}
    assert len(of(Update, workers.world(lost, seen[1], status=status, **asked))) == 1


BEING_REPLACED: dict[str, tuple[dict[str, Any], int]] = {
    "its pod is gone": ({}, 0),
    "its pod ends": ({"terminating": True, "ready": False}, 0),
    "its successor starts": ({"ready": False, "weights_ready": None}, 0),
    "its successor does not get on": ({"ready": False, "weights_ready": None, "trouble": "x"}, 1),
    "its successor restarts": ({"ready": False, "weights_ready": None, "engine_restarts": 1}, 1),
}


@pytest.mark.parametrize(("pod", "expected"), BEING_REPLACED.values(), ids=BEING_REPLACED)
def test_a_worker_whose_pod_is_being_replaced_is_charged_to_the_batch(
    pod: dict[str, Any], expected: int
) -> None:
    status = workers.recorded("step-2", "Preparing")
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}
    made = workers.pod(0, **pod) if pod else None
    first = replace(workers.worker(0, Stage.DOWN), pod=made, reachable=False, report=None)
    first = replace(first, silence="sidecar does not answer")
    outdated = replace(
        workers.worker(1, prepared="step-2"), pod=workers.pod(1, template_hash="old")
    )

    seen = workers.world(first, outdated, status=status, **asked)

    assert len(of(Update, seen)) == expected


def test_a_pod_whose_template_is_unknown_is_not_replaced_and_is_no_peer() -> None:
    """What removed its annotation may remove that of every successor."""
    unmarked = [
        replace(workers.worker(n, proof=proof()), pod=workers.pod(n, template_hash=""))
        for n in range(2)
    ]
    seen = workers.world(*unmarked, status=workers.recorded("step-1", "Completed"))

    assert of(DeletePod, seen) == []
    assert seen.proofs == {}


def test_a_new_template_and_a_new_version_take_one_worker_at_a_time_between_them() -> None:
    outdated = [
        replace(workers.worker(n, prepared="step-2"), pod=workers.pod(n, template_hash="old"))
        for n in range(3)
    ]
    status = workers.recorded("step-2", "Preparing")
    asked = {"weightVersion": "step-2", "rollout": {"maxUnavailable": 1}}
    seen = workers.world(*outdated, status=status, **asked)

    assert (len(of(DeletePod, seen)), of(Update, seen)) == (1, [])


def test_a_rejected_checkpoint_pauses_no_worker() -> None:
    asked = fleets.asking(rolling(), weight_version="step-2")
    seen = fleets.at_rest(asked, {"step-2": Effect.REFUSED})

    assert versions(seen) == ["step-1"] * 4
    assert all(w.pod and w.pod.ready for w in seen.workers)


def test_a_version_that_breaks_engines_takes_only_one_worker() -> None:
    asked = fleets.asking(rolling(), weight_version="step-2")
    seen = fleets.at_rest(asked, {"step-2": Effect.BREAKS})

    assert versions(seen) == [None, "step-1", "step-1", "step-1"]
    assert [w.pod is not None and w.pod.ready for w in seen.workers] == [False, True, True, True]


def test_a_broken_version_is_not_tried_again_on_the_next_worker_after_its_pod_was_replaced() -> (
    None
):
    seen = fleets.at_rest(fleets.asking(rolling(), weight_version="bad"), {"bad": Effect.BREAKS})
    gone = replace(seen.workers[0], pod=None, report=None)
    seen = fleets.at_rest(replace(seen, workers=(gone, *seen.workers[1:])), {"bad": Effect.BREAKS})

    assert versions(seen) == ["step-1"] * 4


def test_another_version_leads_out_of_a_failed_rollout() -> None:
    seen = fleets.at_rest(fleets.asking(rolling(), weight_version="bad"), {"bad": Effect.BREAKS})
    seen = fleets.at_rest(fleets.asking(seen, weight_version="step-3"), {"bad": Effect.BREAKS})

    assert versions(seen) == ["step-3"] * 4


def test_a_worker_that_fails_alone_does_not_stop_the_others() -> None:
    asked = fleets.asking(rolling(), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    asked = fleets.changed(asked, 0, proved="step-2", prepared="step-2")
    broken = fleets.at_rest(asked, {"step-2": Effect.BREAKS}).workers[1].report
    assert broken is not None
    seen = replace(asked, workers=(asked.workers[0], *asked.workers[1:]))
    seen = fleets.changed(seen, 1, stage=broken.stage, proved=None, failure=broken.failure)
    seen = fleets.at_rest(seen)

    assert versions(seen) == ["step-2", None, "step-2", "step-2"]


def test_a_new_worker_in_mid_rollout_goes_straight_to_the_target() -> None:
    asked = fleets.asking(rolling(2), weight_version="step-2", replicas=3)
    asked = settled(recorded(asked, plan(asked)))

    assert CreatePod(2) in plan(asked).actions
    assert versions(fleets.at_rest(asked)) == ["step-2"] * 3


def test_a_new_worker_falls_back_when_the_target_is_refused() -> None:
    asked = fleets.asking(rolling(2), weight_version="step-2", replicas=3)
    seen = fleets.at_rest(asked, {"step-2": Effect.REFUSED})

    assert versions(seen) == ["step-1"] * 3


def test_a_new_worker_never_serves_when_the_only_version_is_refused() -> None:
    seen = fleets.at_rest(
        fleets.world({"replicas": 2, "weightVersion": "step-9"}), {"step-9": Effect.REFUSED}
    )

    assert versions(seen) == [None, None]
    assert not any(w.pod and w.pod.ready for w in seen.workers)


def test_a_late_joiner_does_not_fall_back_behind_a_completed_rollout() -> None:
    seen = fleets.at_rest(fleets.asking(rolling(2), weight_version="step-2"))
    gone = replace(seen.workers[0], pod=None, report=None)
    seen = replace(seen, workers=(gone, seen.workers[1]))
    seen = fleets.at_rest(seen, {"step-2": Effect.REFUSED})

    assert versions(seen) == [None, "step-2"]


def test_a_trainer_that_drives_by_itself_is_not_fought() -> None:
    seen = fleets.at_rest(fleets.world({"replicas": 3}))
    for ordinal in range(3):
        seen = fleets.changed(seen, ordinal, proved="step-7", installed="step-7")
    joined = fleets.at_rest(fleets.asking(seen, replicas=4))

    assert versions(joined) == ["step-7"] * 4


def test_scaling_down_ends_the_highest_ordinals_first() -> None:
    names = [a.name for a in of(DeletePod, fleets.asking(rolling(4), replicas=2))]  # type: ignore[attr-defined]

    assert names == ["qwen-3", "qwen-2"]


def test_a_changed_template_replaces_at_most_max_unavailable_pods() -> None:
    outdated = replace(rolling(4, 2), template_hash="other")

    assert len(of(DeletePod, outdated)) == 2


def ended(*, replace_at: float, phase: str = "Failed") -> World:
    """Return two workers, the second with a pod that has ended."""
    pod = workers.pod(1, phase=phase, ready=False, weights_ready=None)
    return workers.world(workers.worker(0), Worker("qwen-1", 1, pod, replace_at=replace_at))


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize(
    ("replace_at", "deleted"),
    [
        (0.0, ["qwen-1"]),
        (workers.MOMENT, ["qwen-1"]),
        (workers.MOMENT + 0.1, []),
    ],
)
def test_a_pod_that_has_ended_is_replaced_when_its_time_has_come(
    phase: str, replace_at: float, deleted: list[str]
) -> None:
    names = [a.name for a in of(DeletePod, ended(replace_at=replace_at, phase=phase))]  # type: ignore[attr-defined]

    assert names == deleted


def test_a_pod_that_has_ended_and_is_not_wanted_as_it_is_goes_at_once() -> None:
    waiting = ended(replace_at=workers.MOMENT + 60)

    outdated = of(DeletePod, replace(waiting, template_hash="other"))
    scaled = of(DeletePod, fleets.asking(waiting, replicas=1))

    assert DeletePod("qwen-1", "p-1", "the pod template has changed", successor=1) in outdated
    assert scaled == [DeletePod("qwen-1", "p-1", "scaled down")]


def test_an_outdated_pod_without_traffic_costs_nothing_to_replace() -> None:
    seen = rolling(4, 1)
    pod = seen.workers[3].pod
    assert pod is not None
    sick = replace(seen.workers[3], pod=replace(pod, ready=False))
    seen = replace(seen, workers=(*seen.workers[:3], sick))

    names = [a.name for a in of(DeletePod, replace(seen, template_hash="other"))]  # type: ignore[attr-defined]

    assert names == ["qwen-3"]


@pytest.mark.parametrize(("seconds", "is_replaced"), [(1, False), (59, False), (60, True)])
def test_an_outdated_pod_that_is_not_ready_for_a_moment_is_not_replaced_at_once(
    seconds: float,
    is_replaced: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Another worker starts: no worker would serve, because the kubelet was late for a probe."""
    seen = rolling(2, 1)
    first, second = (worker.pod for worker in seen.workers)
    assert first is not None
    assert second is not None
    starts = replace(first, ready=False, weights_ready=None, template_hash="other")
    since = seen.moment - seconds
    late = replace(second, ready=False, ready_changed_at=since)
    booting = replace(workers.worker(0, Stage.DOWN), pod=starts)
    serving = replace(seen.workers[1], pod=late)
    world = replace(seen, workers=(booting, serving), template_hash="other")

    names = [a.name for a in of(DeletePod, world)]  # type: ignore[attr-defined]

    assert names == (["qwen-1"] if is_replaced else [])
    assert due_in_s(world) == (None if is_replaced else 60 - seconds)


def test_a_worker_whose_engine_restarted_is_marked_not_ready_before_anything_else() -> None:
    seen = fleets.changed(rolling(2), 0, stage=Stage.CLOSED, proved=None, boot="other")

    marks = of(MarkPod, seen)

    assert [(m.name, m.ready, m.version) for m in marks] == [("qwen-0", False, None)]  # type: ignore[attr-defined]


def test_from_one_version_to_the_next_only_the_label_is_written() -> None:
    seen = fleets.changed(fleets.asking(rolling(1), weight_version="step-2"), 0, proved="step-2")

    marks = of(MarkPod, seen)

    assert [(m.version, m.relabels, m.regates) for m in marks] == [("step-2", True, False)]  # type: ignore[attr-defined]


def test_a_worker_stays_routable_while_its_clients_wait_at_the_gate() -> None:
    asked = fleets.asking(rolling(2), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    asked = fleets.changed(asked, 0, stage=Stage.LOADING, proved=None)

    assert of(MarkPod, asked) == []


def proving(world: World, ordinal: int, proof: Proof) -> World:
    return fleets.changed(world, ordinal, proved=proof.version, prepared=proof.version, proof=proof)


def test_what_is_expected_of_a_worker_is_what_a_peer_showed_of_the_version() -> None:
    asked = fleets.asking(rolling(2), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    asked = proving(asked, 0, shown := proof("step-2"))
    asked = fleets.changed(asked, 1, prepared="step-2")

    assert of(Update, asked) == [Update("qwen-1", "step-2", "rollout-2", shown)]


def test_peers_that_disagree_are_outvoted_and_the_lowest_ordinal_speaks_for_its_equals() -> None:
    asked = fleets.asking(rolling(4), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    asked = proving(asked, 0, proof("step-2", tokens="odd"))
    asked = proving(asked, 1, proof("step-2", logprobs=(-1.0,)))
    asked = proving(asked, 2, proof("step-2", logprobs=(-1.01,)))
    asked = fleets.changed(asked, 3, prepared="step-2")

    assert [u.expected for u in of(Update, asked)] == [proof("step-2", logprobs=(-1.0,))]  # type: ignore[attr-defined]


def test_a_peer_of_another_template_or_version_is_no_measure() -> None:
    # The one of another template is ended, and one more may be out.
    asked = fleets.asking(rolling(3, 2), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    asked = proving(asked, 0, proof("step-2"))
    asked = fleets.changed(asked, 1, prepared="step-2")
    asked = fleets.changed(asked, 2, prepared="step-2")
    old = tuple(
        replace(w, pod=replace(w.pod, template_hash="older")) if w.ordinal == 0 and w.pod else w
        for w in asked.workers
    )

    assert [u.expected for u in of(Update, replace(asked, workers=old))] == [None]  # type: ignore[attr-defined]


def test_nothing_is_done_for_a_fleet_that_is_being_deleted() -> None:
    seen = fleets.world({"replicas": 2})
    seen = replace(seen, fleet=replace(seen.fleet, deleting=True))

    assert plan(settled(seen)).actions == ()


def test_a_to_b_to_a_are_three_rollouts() -> None:
    seen = fleets.at_rest(fleets.asking(rolling(1), weight_version="step-2"))
    seen = fleets.at_rest(fleets.asking(seen, weight_version="step-1"))

    assert seen.fleet.status.rollout is not None
    assert (seen.fleet.status.rollout.id, seen.fleet.status.rollout.to) == (3, "step-1")


def test_a_failed_version_is_retried_when_it_is_requested_again() -> None:
    seen = fleets.at_rest(fleets.asking(rolling(2), weight_version="bad"), {"bad": Effect.BREAKS})
    seen = fleets.at_rest(fleets.asking(seen, weight_version="step-1"))
    seen = fleets.at_rest(fleets.asking(seen, weight_version="bad"))

    assert versions(seen) == ["bad", "bad"]


def test_a_refusal_of_an_earlier_rollout_is_history() -> None:
    seen = fleets.at_rest(
        fleets.asking(rolling(2), weight_version="late"), {"late": Effect.REFUSED}
    )
    seen = fleets.at_rest(fleets.asking(seen, weight_version="step-1"))
    asked = fleets.asking(seen, weight_version="late")
    after = recorded(asked, plan(asked))

    assert after.fleet.status.rollout is not None
    assert after.fleet.status.rollout.phase == "Preparing"
    assert not any(c.type == "Stalled" for c in after.fleet.status.conditions)


def test_a_superseded_rollout_takes_no_worker_out_of_service() -> None:
    asked = fleets.asking(rolling(3), weight_version="step-2")
    asked = recorded(asked, plan(asked))
    asked = fleets.changed(asked, 0, proved="step-2", prepared="step-2")
    asked = recorded(asked, plan(asked))

    newer = fleets.asking(asked, weight_version="step-3")

    assert not [mark for mark in of(MarkPod, newer) if not mark.ready]  # type: ignore[attr-defined]
    assert versions(fleets.at_rest(newer)) == ["step-3"] * 3


def test_a_worker_that_was_led_elsewhere_behind_our_back_takes_no_traffic() -> None:
    seen = fleets.changed(rolling(2), 1, proved="elsewhere", installed="elsewhere")

    assert [(m.name, m.ready) for m in of(MarkPod, seen)] == [("qwen-1", False)]  # type: ignore[attr-defined]
    assert versions(fleets.at_rest(seen)) == ["step-1", "step-1"]
