"""Which version of the store a fleet goes to, and when."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.report import Newest, Stage
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout import following
from rlfleet_operator.core.rollout.following import latest, lookers
from rlfleet_operator.core.status import conditions
from rlfleet_operator.crd.fleet_status import StoreVersion
from tests import workers

SINCE = "2023-11-14T22:13:20Z"
WEIGHTS = {"path": "/weights/{version}", "follow": "Latest"}


def newest(version: str, run: str = "") -> Newest:
    return Newest(version=version, run=run, found_at=1.0)


def store(version: str, run: str = "", since: str = SINCE) -> StoreVersion:
    return StoreVersion(version=version, run_id=run, since=since)


def world(*members: Worker, status: dict[str, Any] | None = None, **spec: Any) -> World:
    wanted = {"weights": WEIGHTS, "weightVersion": None} | spec
    return workers.world(*members, status=status, **wanted)


def followed(seen: World, found: StoreVersion | None) -> StoreVersion | None:
    return following.followed(seen, found, plan(seen).rollout)


def known(version: str, run: str = "") -> dict[str, str]:
    return {"version": version, "runId": run, "since": "2020-01-01T00:00:00Z"}


def going(to: str, phase: str, **fields: Any) -> dict[str, Any]:
    return workers.recorded(to, phase, **fields) | {"followed": known(to)}


# --- workers that cannot look --------------------------------------------------------------------

_DENIED = Problem.of(Code.CHECKPOINT_UNREADABLE, "access denied; check the credentials")


def degraded(seen: World) -> str | None:
    found = [v for v in conditions.verdicts(seen, plan(seen).rollout) if v.type == "Degraded"]
    return f"{found[0].reason}: {found[0].message}" if found else None


def test_a_store_that_no_worker_can_read_is_named_with_its_cause() -> None:
    blind = [workers.worker(n, look_failure=_DENIED, newest=newest("step-1")) for n in range(2)]

    message = degraded(world(*blind))

    assert message is not None
    assert message.startswith("StoreUnreadable: no worker can look for new versions")
    assert message.endswith("qwen-0: CheckpointUnreadable: access denied; check the credentials")


def test_an_offer_that_no_worker_can_accept_is_named_with_its_cause() -> None:
    why = Problem.of(Code.CHECKPOINT_UNREADABLE, "failed to write /w/step_2/.receiver_ready: …")
    seen = world(
        workers.worker(look_failure=why, newest=newest("step-1")),
        weights=WEIGHTS | {"acknowledge": True},
    )

    message = degraded(seen)

    assert message is not None
    assert "no worker can look for new versions, or accept what is offered" in message
    assert message.endswith(why.message)


@pytest.mark.parametrize(
    "other",
    [{}, {"newest": newest("step-1")}, {"look_failure": _DENIED, "stage": Stage.OPEN}],
    ids=["sees an empty store", "sees a version", "is blind too, in a fleet that does not follow"],
)
def test_one_worker_that_can_look_is_enough(other: dict[str, Any]) -> None:
    weights = {"path": "/weights/{version}"} if "look_failure" in other else WEIGHTS
    members = [workers.worker(0, look_failure=_DENIED), workers.worker(1, **other)]

    assert degraded(world(*members, weights=weights)) is None


def test_the_first_live_workers_look_and_no_others() -> None:
    members = [workers.worker(n) for n in range(7)]
    members[1] = replace(members[1], reachable=False)

    assert lookers(world(*members), None).keys() == {"qwen-0", "qwen-2", "qwen-3", "qwen-4"}
    assert lookers(world(*members, weights={"path": "/weights/{version}"}), None) == {}


def test_workers_that_do_not_look_do_not_hide_that_the_others_cannot() -> None:
    members = [workers.worker(n, look_failure=_DENIED if n < 4 else None) for n in range(6)]

    assert degraded(world(*members)) is not None


# --- what the store has -------------------------------------------------------------------------


def test_a_fleet_that_does_not_follow_has_neither() -> None:
    weights = {"path": "/weights/{version}"}
    seen = world(workers.worker(newest=newest("step-2")), weights=weights)

    assert latest(seen) is None
    assert followed(seen, store("step-2")) is None


def test_the_highest_that_any_worker_sees_is_the_newest() -> None:
    seen = world(
        workers.worker(0, newest=newest("step-9")),
        workers.worker(1, newest=newest("step-10")),
        workers.worker(2),
    )

    assert latest(seen) == store("step-10")


def test_workers_that_see_nothing_leave_what_was_known() -> None:
    seen = world(workers.worker(), status={"latest": known("step-3")})

    assert latest(seen) == store("step-3", since="2020-01-01T00:00:00Z")
    assert latest(world(workers.worker())) is None


@pytest.mark.parametrize("version", ["step-2", "step-3"])
def test_what_the_store_lost_does_not_take_the_newest_back(version: str) -> None:
    member = workers.worker(newest=newest(version))
    seen = world(member, status={"latest": known("step-3")})

    assert latest(seen) == store("step-3", since="2020-01-01T00:00:00Z")


def test_a_run_is_left_once_no_worker_sees_it() -> None:
    old, new = newest("step-9", "a"), newest("step-1", "b")
    status = {"latest": known("step-9", "a")}

    split = world(workers.worker(0, newest=old), workers.worker(1, newest=new), status=status)
    agreed = world(workers.worker(0, newest=new), workers.worker(1, newest=new), status=status)

    assert latest(split) == store("step-9", "a", since="2020-01-01T00:00:00Z")
    assert latest(agreed) == store("step-1", "b")


def test_a_run_without_a_version_is_the_base_model() -> None:
    members = [workers.worker(newest=newest("base", "b"))]

    assert latest(world(*members, status={"latest": known("step-9", "a")})) == store("base", "b")
    ahead = world(*members, status={"latest": known("step-1", "b")})
    assert latest(ahead) == store("step-1", "b", since="2020-01-01T00:00:00Z")


# --- what the fleet goes to ---------------------------------------------------------------------


def test_the_first_version_is_taken_at_once() -> None:
    assert followed(world(workers.worker()), store("step-2")) == store("step-2")


def test_a_fleet_that_begins_to_follow_does_not_go_back_by_a_list_of_names() -> None:
    seen = world(workers.worker(), status=workers.recorded("step-5", "Completed"))

    assert followed(seen, store("step-4")) is None
    assert followed(seen, store("step-5")) == store("step-5")
    assert followed(seen, store("step-4", "run-1")) == store("step-4", "run-1")


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Held", "RolledBack", "Superseded"])
def test_after_a_rollout_the_next_newer_version_is_taken(phase: str) -> None:
    seen = world(workers.worker(), status=going("step-2", phase))

    assert followed(seen, store("step-7")) == store("step-7")
    assert seen.fleet.target == "step-2"


@pytest.mark.parametrize("phase", ["Preparing", "Updating", "CanaryHold", "Paused", "Reloading"])
def test_a_rollout_that_gets_on_or_is_held_is_not_replaced(phase: str) -> None:
    seen = world(workers.worker(), status=going("step-2", phase))

    assert followed(seen, store("step-7")) == seen.fleet.status.followed


def test_the_newest_version_is_not_taken_twice() -> None:
    """One that failed would be tried again for ever."""
    seen = world(workers.worker(), status=going("step-2", "Failed"))

    assert followed(seen, store("step-2")) == seen.fleet.status.followed
    assert followed(seen, store("step-1")) == seen.fleet.status.followed


def test_a_pin_leaves_the_fleet_at_the_newest_version_once_it_is_removed() -> None:
    status = going("step-2", "Preparing")
    seen = world(workers.worker(), status=status, weightVersion="step-1")

    assert followed(seen, store("step-7")) == store("step-7")
    assert seen.fleet.target == "step-1"


OPERATION = "rollout-1"


@pytest.mark.parametrize(
    "member",
    [
        workers.worker(0, refusal=workers.problem(Code.CHECKPOINT_INVALID, "step-2", OPERATION)),
        workers.worker(
            0, Stage.DOUBT, failure=workers.problem(Code.PROOF_FAILED, "step-2", OPERATION)
        ),
        workers.worker(0, Stage.DOWN),
        workers.worker(0, proved="step-2"),
    ],
    ids=["refused", "failed", "down", "there"],
)
def test_workers_that_cannot_get_on_do_not_hold_back_the_next_version(member: Worker) -> None:
    status = going("step-2", "Updating")

    seen = world(member, workers.worker(1, proved="step-2"), status=status)

    assert followed(seen, store("step-7")) == store("step-7")


def test_workers_below_the_partition_do_not_hold_back_the_next_version() -> None:
    members = [workers.worker(0), workers.worker(1, proved="step-2")]
    status = going("step-2", "Partitioned")

    seen = world(*members, status=status, rollout={"partition": 1})

    assert followed(seen, store("step-7")) == store("step-7")


def test_a_rollout_past_its_deadline_is_replaced() -> None:
    status = going("step-2", "Preparing", startedAt="2023-11-14T20:00:00Z")
    seen = world(workers.worker(), status=status, rollout={"progressDeadlineSeconds": 600})

    assert followed(seen, store("step-7")) == store("step-7")


def test_a_version_whose_rollout_begins_now_is_not_replaced() -> None:
    status = workers.recorded("step-1", "Completed") | {"followed": known("step-2")}
    seen = world(workers.worker(), status=status)

    assert followed(seen, store("step-7")) == seen.fleet.status.followed


@pytest.mark.parametrize(
    "spec",
    [
        {"rollout": {"dryRun": True}},
        {"staleness": {"minVersion": "step-5", "onViolation": "Unready"}},
    ],
)
def test_a_version_whose_rollout_does_not_begin_is_replaced(spec: dict[str, Any]) -> None:
    status = workers.recorded("step-1", "Completed") | {"followed": known("step-2")}

    seen = world(workers.worker(), status=status, **spec)

    assert followed(seen, store("step-7")) == store("step-7")


# --- what it accepts of a trainer that offers versions -------------------------------------------


def taken_up(status: dict[str, Any] | None, *members: Worker, **spec: Any) -> str | None:
    wanted = {"weights": WEIGHTS | {"acknowledge": True}} | spec
    seen = world(*members, status=status, **wanted)
    found = set(lookers(seen, plan(seen).rollout).values())
    assert len(found) == 1
    return found.pop()


def test_the_first_offer_is_accepted_at_once() -> None:
    assert taken_up(None, workers.worker()) == "base"


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS | {"acknowledge": False}], ids=str)
def test_nothing_is_accepted_unless_the_fleet_says_so(weights: dict[str, Any]) -> None:
    assert taken_up(None, workers.worker(), weights=weights) is None


@pytest.mark.parametrize("phase", ["Preparing", "Updating", "CanaryHold", "Paused", "Reloading"])
def test_no_offer_is_accepted_while_the_fleet_changes_or_is_held(phase: str) -> None:
    """The trainer would delete the version, which late workers have yet to copy."""
    member = workers.worker(newest=newest("step-2"))

    assert taken_up(going("step-2", phase), member) is None


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Held", "RolledBack"])
def test_after_a_rollout_the_next_offer_is_accepted(phase: str) -> None:
    """Also after one that failed: else the trainer ends by its timeout."""
    proved = "step-2" if phase == "Completed" else "step-1"
    member = workers.worker(newest=newest("step-2"), proved=proved)

    assert taken_up(going("step-2", phase), member) == "step-2"


def test_no_offer_is_accepted_when_a_version_waits_to_be_taken_up() -> None:
    member = workers.worker(newest=newest("step-3"), proved="step-2")

    assert taken_up(going("step-2", "Completed"), member) is None


def test_workers_that_are_lost_do_not_make_the_trainer_wait() -> None:
    there = workers.worker(0, newest=newest("step-2"), proved="step-2")

    status = going("step-2", "Updating")

    assert taken_up(status, there, workers.worker(1, Stage.DOWN)) == "step-2"
    assert taken_up(status, there, workers.worker(1)) is None


def test_a_pinned_fleet_lets_its_trainer_continue_once_it_has_the_pinned_version() -> None:
    status = workers.recorded("step-1", "Completed") | {"followed": known("step-7")}
    member = workers.worker(newest=newest("step-7"))

    assert taken_up(status, member, weightVersion="step-1") == "step-7"
    changing = workers.recorded("step-1", "Updating") | {"followed": known("step-7")}
    lagging = workers.worker(newest=newest("step-7"), proved="step-0")
    assert taken_up(changing, lagging, weightVersion="step-1") is None
