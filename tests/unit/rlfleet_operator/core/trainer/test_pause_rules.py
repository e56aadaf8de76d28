"""What a trainer may request of a whole fleet, what is recorded, and the replies."""

from typing import Any

import pytest

from rlfleet_contract.worker.commands import KVCache, PauseMode, Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import Fleet
from rlfleet_operator.core.trainer import pause_rules as rules
from rlfleet_operator.core.trainer import replies
from rlfleet_operator.core.trainer.models import Fault, Refusal, record_of
from rlfleet_operator.core.trainer.pause_rules import PauseRequested
from rlfleet_operator.core.trainer.replies import WorkerState
from rlfleet_operator.crd.fleet_status import TrainerPause
from tests import fleets, workers

MOMENT = 1e9
PAUSE: dict[str, Any] = {
    "operation": "fleet-pause-1",
    "askedAt": "2001-09-09T01:46:00Z",
    "until": "2001-09-09T02:11:00Z",
    "ttlSeconds": 1500,
}
RAW = {"metadata": {"resourceVersion": "17"}}
ASKED = {"trainerTarget": {"version": "step-2", "askedAt": "2026-01-01T00:00:00Z"}}
COMPLETED = workers.recorded("step-2", "Completed") | ASKED


def fleet(spec: dict[str, Any] | None = None, **status: Any) -> Fleet:
    return fleets.fleet({"replicas": 2} | (spec or {}), status=status)


def pause(**fields: Any) -> TrainerPause:
    return TrainerPause.model_validate(PAUSE | fields)


def state_of(stage: Stage, ordinal: int = 0, *, held: bool = True, **fields: Any) -> WorkerState:
    known = {"proved": "step-1"} if stage is not Stage.DOUBT else {}
    report = workers.report(stage, **(known | fields))
    return WorkerState(f"qwen-{ordinal}", workers.pod(ordinal), report, fleet_paused=held)


SILENT = WorkerState("qwen-1", None, None, "no pod", fleet_paused=True)


@pytest.mark.parametrize(
    ("body", "query"),
    [
        (b'{"mode":"wait","clear_cache":false,"ttl_s":60}', {}),
        (b'{"mode":"Wait","clear_cache":false,"ttl_s":60}', {"mode": "abort"}),
        (b"", {"mode": "wait", "clear_cache": "false", "ttl_s": "60"}),
    ],
)
def test_a_pause_is_read_from_its_body_or_its_query(body: bytes, query: dict[str, str]) -> None:
    asked = rules.asked_from(body, query)

    assert (asked.mode, asked.clear_cache, asked.ttl_s) == (PauseMode.WAIT, False, 60)
    assert rules.asked_from(b"", {}) == PauseRequested()
    assert PauseRequested().ttl_s == 1500


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"mode":"later"}', "mode"),
        (b'{"ttl_s":3601}', "ttl_s"),
        (b'{"ttl_s":0}', "ttl_s"),
        (b'{"moed":"keep"}', "moed"),
        (b"[]", "the body"),
        (b'{"mode":3}', "mode"),
    ],
)
def test_what_cannot_be_read_names_its_field(body: bytes, field: str) -> None:
    with pytest.raises(Refusal, match=f"^{field}: ") as refusal:
        rules.asked_from(body, {})

    assert refusal.value.fault is Fault.INVALID_REQUEST


@pytest.mark.parametrize(
    ("seen", "fault", "says"),
    [
        (fleet({"weightVersion": "step-9"}), Fault.VERSION_OWNED, "spec.weightVersion is step-9"),
        (fleet({"replicas": 0}), Fault.NO_WORKERS, "spec.replicas is 0"),
        (fleet(**ASKED), Fault.ROLLOUT_RUNS, "a rollout to step-2 is under way"),
        (
            fleet(**(workers.recorded("step-2", "Reloading") | ASKED)),
            Fault.ROLLOUT_RUNS,
            "rollout 1 to step-2 is under way",
        ),
    ],
)
def test_a_fleet_that_its_spec_or_a_rollout_drives_is_not_paused(
    seen: Fleet, fault: Fault, says: str
) -> None:
    with pytest.raises(Refusal, match=says) as refusal:
        rules.demand_quiet(seen, RAW, "pause")

    assert refusal.value.fault is fault


@pytest.mark.parametrize("status", [{}, COMPLETED, COMPLETED | {"trainerPause": PAUSE}])
def test_a_fleet_at_rest_is_its_trainer_s_to_pause(status: dict[str, Any]) -> None:
    rules.demand_quiet(fleet(**status), RAW, "pause")


@pytest.mark.parametrize(
    ("held", "said", "why"),
    [
        (
            pause(),
            [state_of(Stage.PAUSED), state_of(Stage.DOUBT, 1)],
            "weights of qwen-1 are unknown",
        ),
        (pause(), [state_of(Stage.LOADING, 1)], "weights of qwen-1 are unknown"),
        (
            pause(version="step-2"),
            [state_of(Stage.PAUSED, proved="step-2"), state_of(Stage.PAUSED, 1)],
            "qwen-1 did not prove step-2",
        ),
        (pause(refused="a wrong directory"), [state_of(Stage.PAUSED)], "a wrong directory"),
    ],
)
def test_a_blind_resume_after_an_update_that_did_not_end_well_is_refused(
    held: TrainerPause, said: list[WorkerState], why: str
) -> None:
    with pytest.raises(Refusal, match=why) as refusal:
        rules.demand_resumable(held, said)

    assert refusal.value.fault is Fault.NOT_RESUMABLE


def test_a_resume_after_a_good_update_does_not_wait_for_silent_workers() -> None:
    done = state_of(Stage.PROVED, proved="step-2")

    rules.demand_resumable(pause(version="step-2"), [done, SILENT])
    rules.demand_resumable(
        pause(), [state_of(Stage.PAUSED), state_of(Stage.PROVED, 1, proved="step-9")]
    )


def test_a_repeated_pause_continues_and_clears_the_rejection() -> None:
    first = rules.paused(
        None, PauseRequested(mode=PauseMode.WAIT, ttl_s=60), MOMENT, "fleet-pause-1"
    )
    blamed = rules.refused(first.model_copy(update={"version": "bad", "flushes": 2}), "why")

    again = rules.paused(blamed, PauseRequested(clear_cache=False), MOMENT + 30, "fleet-pause-2")

    assert first.until == "2001-09-09T01:47:40Z"
    assert first.mode is PauseMode.WAIT
    assert (again.operation, again.asked_at) == (first.operation, first.asked_at)
    assert (again.version, again.refused, again.flushes) == (None, None, 2)
    assert (again.kv_cache, again.until) == (KVCache.PRESERVE, "2001-09-09T02:12:10Z")


def test_each_request_of_the_trainer_extends_the_pause() -> None:
    asked = record_of(RAW, "step-2", MOMENT, pause(refused="why"))

    assert asked["status"]["trainerPause"] == {
        "version": "step-2",
        "refused": None,
        "until": "2001-09-09T02:11:40Z",
    }
    assert rules.kept(pause(), MOMENT, flushes=1).until == "2001-09-09T02:11:40Z"
    assert "trainerPause" not in record_of(RAW, "step-2", MOMENT)["status"]


def test_a_record_holds_only_while_the_fleet_is_as_it_was_looked_at() -> None:
    patch = rules.record_of_pause(RAW, pause())

    assert patch["metadata"] == {"resourceVersion": "17"}
    # A merge patch: what is not said would stay from the pause before.
    assert patch["status"]["trainerPause"].keys() >= {"version", "refused", "ending", "flushes"}


@pytest.mark.parametrize(
    ("status", "moment", "holds"),
    [
        ({"trainerPause": PAUSE}, MOMENT, True),
        ({"trainerPause": PAUSE}, MOMENT + 2000, False),
        ({"trainerPause": PAUSE | {"ending": True}}, MOMENT, False),
        ({}, MOMENT, False),
    ],
)
def test_a_pause_holds_until_its_time_is_over(
    status: dict[str, Any], moment: float, *, holds: bool
) -> None:
    assert (fleet(**status).pause_at(moment) is not None) is holds
    assert fleet({"weightVersion": "step-1"}, **status).pause_at(moment) is None
    if holds:
        assert rules.demand_paused(fleet(**status), moment).operation == "fleet-pause-1"
    else:
        with pytest.raises(Refusal, match="send pause first"):
            rules.demand_paused(fleet(**status), moment)


RUNNING: dict[str, Any] = {"running": {"verb": Verb.PAUSE, "operation": "o", "version": "step-1"}}


@pytest.mark.parametrize(
    ("worker", "is_paused"),
    [
        (state_of(Stage.PAUSED), True),
        (state_of(Stage.PROVED), True),
        (state_of(Stage.PAUSED, running=RUNNING["running"] | {"verb": Verb.PREPARE}), True),
        (state_of(Stage.PAUSED, **RUNNING), False),
        (state_of(Stage.PAUSED, proved=None), False),
        (state_of(Stage.OPEN), False),
        (state_of(Stage.DOUBT), False),
        (SILENT, False),
    ],
)
def test_only_a_worker_with_a_closed_gate_and_a_proved_version_is_paused(
    worker: WorkerState, *, is_paused: bool
) -> None:
    assert worker.is_paused is is_paused


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        ([state_of(Stage.PAUSED), state_of(Stage.PROVED, 1)], 200, None),
        ([state_of(Stage.PAUSED), SILENT], 502, Fault.INCOMPLETE),
        ([state_of(Stage.PAUSED), state_of(Stage.OPEN, 1)], 502, Fault.INCOMPLETE),
        ([], 503, Fault.NO_WORKERS),
    ],
)
def test_only_what_every_worker_did_is_a_success(
    said: list[WorkerState], status: int, code: Fault | None
) -> None:
    seen = fleet(trainerPause=PAUSE)

    found, reply = rules.pause_reply(
        seen, said, lambda w: w.is_paused, "are paused", moment=MOMENT, hint="retry"
    )

    assert (found, reply.code, reply.retryable) == (status, code, code is not None)
    assert (reply.paused, reply.paused_until) == (True, PAUSE["until"])
    assert [w.status == "ok" for w in reply.workers] == [w.is_paused for w in said]


def test_an_update_underneath_is_proved_by_workers_that_wait() -> None:
    seen = fleet(**(COMPLETED | {"trainerPause": PAUSE}))
    held = [state_of(Stage.PROVED, i, proved="step-2") for i in (0, 1)]
    unheld = [state_of(Stage.PROVED, i, held=False, proved="step-2") for i in (0, 1)]

    assert replies.updated(seen, held, "step-2")[0] == 200
    assert replies.updated(seen, unheld, "step-2")[0] == 502
    assert replies.updated(seen, [held[0], state_of(Stage.PROVED, 1)], "step-2")[0] == 502


@pytest.mark.parametrize(
    ("said", "is_paused"),
    [
        ([state_of(Stage.PAUSED, paused_s=1.0), state_of(Stage.PROVED, 1)], True),
        ([state_of(Stage.PAUSED, paused_s=1.0), state_of(Stage.OPEN, 1)], False),
        ([state_of(Stage.PAUSED, paused_s=1.0), SILENT], False),
    ],
)
def test_state_shows_whether_all_are_paused_and_by_what(
    said: list[WorkerState], *, is_paused: bool
) -> None:
    told = replies.state(fleet(trainerPause=PAUSE), said, pause())

    assert (told.paused, told.ready) == (is_paused, False)
    assert (told.paused_by, told.paused_until) == ("trainer", PAUSE["until"])
    assert replies.state(fleet(), said).paused_by is None


def test_a_worker_that_failed_at_it_says_so() -> None:
    failure = workers.problem(Code.PAUSE_FAILED, "step-1", "fleet-pause-1")

    assert rules.is_given_up(state_of(Stage.OPEN, failure=failure), "fleet-pause-1")
    assert not rules.is_given_up(state_of(Stage.OPEN, failure=failure), "fleet-pause-2")
    assert not rules.is_given_up(SILENT, "fleet-pause-1")


@pytest.mark.parametrize("stage", [Stage.DOWN, Stage.CLOSED])
def test_a_worker_whose_engine_boots_holds_no_resume_up(stage: Stage) -> None:
    """It is led to what the fleet asks for before it takes traffic."""
    rules.demand_resumable(
        pause(version="step-2"), [state_of(Stage.PAUSED, proved="step-2"), state_of(stage, 1)]
    )
