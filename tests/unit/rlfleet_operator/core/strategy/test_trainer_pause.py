"""What is asked of workers while their trainer has paused the fleet, and after it."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import KVCache, PauseMode, Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Flush, Pause, Resume, Update, WeightsCommand
from rlfleet_operator.core.model.world import World, time_of
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.rollout import served
from rlfleet_operator.core.simulation.model_worker import Effect
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_status import FleetStatus, TrainerPause, TrainerTarget
from rlfleet_operator.crd.rollout_spec import OnFailure, Strategy
from tests import fleets, workers

AN_HOUR_S = 3600
NEVER_S = 1e8


def paused(seen: World, lasting_s: float = NEVER_S, **fields: Any) -> World:
    """Return the world after its trainer's pause was recorded."""
    known: dict[str, Any] = {
        "operation": "fleet-pause-1",
        "askedAt": "2001-09-09T01:46:40Z",
        "until": time_of(seen.moment + lasting_s),
        "ttlSeconds": 1500,
    }
    pause = TrainerPause.model_validate(known | fields)
    return with_status(seen, trainer_pause=pause)


def asking(seen: World, version: str) -> World:
    """Return the world after its trainer asked for a version."""
    target = TrainerTarget(version=version, asked_at="2026-01-01T00:00:00Z")
    pause = seen.fleet.status.trainer_pause
    if pause is not None:
        seen = with_status(seen, trainer_pause=pause.model_copy(update={"version": version}))
    return with_status(seen, trainer_target=target)


def resumed(seen: World) -> World:
    pause = seen.fleet.status.trainer_pause
    assert pause is not None
    return with_status(seen, trainer_pause=pause.model_copy(update={"ending": True}))


def with_status(seen: World, **fields: Any) -> World:
    status = seen.fleet.status.model_copy(update=fields)
    return replace(seen, fleet=replace(seen.fleet, status=status))


def commands(seen: World) -> list[WeightsCommand]:
    return [a for a in plan(seen).actions if isinstance(a, WeightsCommand)]


def stages(seen: World) -> list[tuple[Stage, str | None]]:
    return [(w.stage, w.proved) for w in seen.desired]


def of(seen: World) -> FleetStatus:
    return fleets.readable(status_of(seen, plan(seen).rollout))


@pytest.fixture(params=["without a target", "with its trainer's target"])
def serving(request: pytest.FixtureRequest) -> World:
    """Three workers that serve base, or step-1 because their trainer asked for it."""
    start = fleets.world({"replicas": 3, "rollout": {"maxUnavailable": 1}})
    return fleets.at_rest(asking(start, "step-1") if "trainer" in request.param else start)


def test_every_worker_pauses_and_stays_so(serving: World) -> None:
    version = served(serving)
    seen = paused(serving, mode="Wait", kvCache="Preserve")
    seen = replace(seen, workers=tuple(replace(w, fleet_paused=True) for w in seen.workers))

    assert commands(seen) == [
        Pause(f"qwen-{i}", version, "fleet-pause-1", PauseMode.WAIT, KVCache.PRESERVE)
        for i in range(3)
    ]
    rest = fleets.at_rest(seen)
    assert stages(rest) == [(Stage.PAUSED, version)] * 3
    assert commands(rest) == []


def test_a_failed_pause_is_retried_while_the_others_wait(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))
    failure = workers.problem(Code.PAUSE_FAILED, served(serving), "fleet-pause-1")

    undone = fleets.changed(rest, 1, stage=Stage.OPEN, failure=failure)

    assert [(type(c), c.worker) for c in commands(undone)] == [(Pause, "qwen-1")]


def test_a_paused_fleet_reports_it_and_no_worker_counts_as_failed(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))
    said = of(rest)

    conditions = {c.type: c for c in said.conditions}
    assert conditions["Paused"].reason == "PausedByTrainer"
    assert said.trainer_pause is not None
    assert said.trainer_pause.until in conditions["Paused"].message
    assert "3 of 3 workers paused" in conditions["Paused"].message
    assert {w.phase for w in said.workers} == {"Paused"}
    assert conditions["Ready"].status == "True"
    assert not {"Stalled", "Reconciling"} & conditions.keys()
    assert (said.proved, said.ready_replicas) == ("3/3", 3)
    assert "Paused" not in {c.type for c in of(serving).conditions}


def test_its_end_opens_every_worker_and_takes_the_record_away(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))

    ended = resumed(rest)
    done = fleets.at_rest(ended)

    assert [type(c) for c in commands(fleets.at_rest(rest))] == []
    assert of(ended).trainer_pause is not None
    assert stages(done) == [(Stage.OPEN, served(serving))] * 3
    assert of(done).trainer_pause is None


@pytest.mark.parametrize("end", ["its time is over", "the spec names a version"])
def test_it_ends_without_its_trainer(serving: World, end: str) -> None:
    rest = fleets.at_rest(paused(serving))
    if "time" in end:
        over = paused(rest, lasting_s=0)
    else:
        over = fleets.asking(rest, weight_version="step-7")

    done = fleets.at_rest(over)

    assert {stage for stage, _ in stages(done)} == {Stage.OPEN}
    assert done.fleet.status.trainer_pause is None


def test_workers_that_a_trainer_paused_at_their_sidecars_stay_paused() -> None:
    seen = fleets.changed(
        fleets.at_rest(fleets.world({"replicas": 3})), 0, stage=Stage.PAUSED, paused_s=3.0
    )

    assert commands(seen) == []
    assert [type(c) for c in commands(resumed(paused(seen)))] == [Resume]


def test_an_update_underneath_ends_proved_behind_closed_gates(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))

    done = fleets.at_rest(asking(rest, "step-2"))

    assert stages(done) == [(Stage.PROVED, "step-2")] * 3
    assert done.fleet.status.rollout is not None
    assert done.fleet.status.rollout.phase == "Completed"
    assert stages(fleets.at_rest(resumed(done))) == [(Stage.OPEN, "step-2")] * 3


@pytest.mark.parametrize("strategy", [Strategy.ROLLING, Strategy.CANARY, Strategy.BARRIER])
def test_a_version_takes_a_second_worker_only_once_it_held(strategy: Strategy) -> None:
    rules = {"strategy": strategy, "maxUnavailable": 1}
    start = fleets.at_rest(asking(fleets.world({"replicas": 3, "rollout": rules}), "step-1"))
    rest = fleets.at_rest(paused(start))

    done = fleets.at_rest(asking(rest, "bad"), {"bad": Effect.BREAKS})

    fallen = sum(w.report is not None and w.report.installed == "bad" for w in done.desired)
    healed = sum(w.proved == "step-1" for w in done.desired)
    assert fallen + healed == 3
    assert not any(w.is_open for w in done.desired)
    if strategy is not Strategy.BARRIER:
        assert (fallen, healed) == (1, 2)
        others = [w.stage for w in done.desired[1:]]
        assert others == [Stage.PAUSED, Stage.PAUSED]


def test_all_others_load_at_once_after_the_first() -> None:
    start = fleets.at_rest(asking(fleets.world({"replicas": 3}), "step-1"))
    rest = asking(fleets.at_rest(paused(start)), "step-2")
    moved = fleets.changed(
        _recorded(rest), 0, stage=Stage.PROVED, proved="step-2", prepared="step-2"
    )
    for ordinal in (1, 2):
        moved = fleets.changed(moved, ordinal, prepared="step-2")

    sent = [c for c in commands(moved) if isinstance(c, Update)]

    assert [(c.worker, c.through) for c in sent] == [
        ("qwen-1", Verb.VERIFY),
        ("qwen-2", Verb.VERIFY),
    ]


def _recorded(seen: World) -> World:
    later = replace(seen, moment=seen.moment + AN_HOUR_S)
    recorded = with_status(later, **dict(_fields(status_of(later, plan(later).rollout))))
    assert recorded.fleet.status.rollout is not None
    assert recorded.fleet.status.rollout.to == "step-2"
    return recorded


def _fields(status: FleetStatus) -> list[tuple[str, Any]]:
    return list(status)


def test_a_failed_update_is_rolled_back_behind_closed_gates() -> None:
    rules = {"onFailure": OnFailure.ROLLBACK}
    start = fleets.at_rest(asking(fleets.world({"replicas": 2, "rollout": rules}), "step-1"))

    done = fleets.at_rest(asking(fleets.at_rest(paused(start)), "bad"), {"bad": Effect.BREAKS})

    assert {proved for _, proved in stages(done)} == {"step-1"}
    assert not any(w.is_open for w in done.desired)
    assert done.fleet.status.rollout is not None
    assert done.fleet.status.rollout.phase == "RolledBack"


def test_a_worker_that_joins_proves_and_does_not_open(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))
    workers_of = tuple(
        replace(w, pod=None, report=None) if w.ordinal == 1 else w for w in rest.workers
    )

    done = fleets.at_rest(replace(rest, workers=workers_of))

    assert [stage for stage, _ in stages(done)] == [Stage.PAUSED, Stage.PROVED, Stage.PAUSED]
    assert {proved for _, proved in stages(done)} == {served(serving)}


def test_no_pod_is_replaced_underneath(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))

    other = replace(rest, template_hash="another")

    assert plan(other).actions == ()


def test_a_long_pause_is_no_barrier_that_failed() -> None:
    rules = {"strategy": Strategy.BARRIER}
    start = fleets.at_rest(asking(fleets.world({"replicas": 2, "rollout": rules}), "step-1"))
    seen = asking(fleets.at_rest(paused(start)), "step-2")
    seen = _recorded(seen)
    for ordinal in (0, 1):
        seen = fleets.changed(seen, ordinal, paused_s=9000.0)

    rollout = plan(seen).rollout

    assert rollout is not None
    assert rollout.is_active


def test_a_flush_reaches_each_paused_worker_once(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))
    version = served(serving)

    asked = paused(rest, flushes=2)
    done = fleets.at_rest(asked)

    assert commands(asked) == [
        Flush(f"qwen-{i}", version, "fleet-pause-1-flush-2") for i in range(3)
    ]
    assert commands(done) == []
    assert stages(done) == [(Stage.PAUSED, version)] * 3


def test_a_flush_pauses_workers_that_have_proved_a_version_first(serving: World) -> None:
    rest = fleets.at_rest(paused(serving))
    proved = fleets.at_rest(asking(rest, "step-2"))

    done = fleets.at_rest(paused(proved, flushes=1, version="step-2"))

    assert stages(done) == [(Stage.PAUSED, "step-2")] * 3
    assert all(w.report and w.report.flushed for w in done.desired)
