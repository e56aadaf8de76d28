"""The status of a fleet."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code, Problem
from rlfleet_contract.worker.proof import Evidence
from rlfleet_contract.worker.report import Change, Stage, Timings
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.status.fleet import abandoned, status_of
from rlfleet_operator.crd.fleet_status import Condition, FleetStatus
from rlfleet_operator.crd.rollout_status import RolloutStatus
from rlfleet_operator.crd.selftest import SelfTestStatus
from tests import fleets
from tests.proofs import proof
from tests.workers import MOMENT, pod, problem, recorded, worker, world

NOW = "2023-11-14T22:13:20Z"
TO_2: dict[str, Any] = {"weightVersion": "step-2", "status": recorded("step-2", "Preparing")}
SIZE_LIMIT = 256 * 1024


def of(seen: World) -> FleetStatus:
    return fleets.readable(status_of(seen, current(seen)))


def rollout_of(seen: World) -> RolloutStatus:
    found = of(seen).rollout
    assert found is not None
    return found


def dumped(status: FleetStatus) -> str:
    return json.dumps(status.model_dump(mode="json", by_alias=True, exclude_none=True))


# --- at rest ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 3, "weightVersion": "step-1"},
        {"replicas": 3, "weights": None},
        {"replicas": 0, "weightVersion": "step-1"},
        {"replicas": 3, "weightVersion": "step-1", "statusWorkerLimit": 1},
    ],
    ids=["a version", "no version", "no worker", "a short list"],
)
def test_at_rest_there_is_nothing_to_write_however_late_it_gets(spec: dict[str, Any]) -> None:
    seen = fleets.at_rest(fleets.world(spec))

    assert of(seen) == seen.fleet.status
    assert of(replace(seen, moment=seen.moment + 99_999)) == seen.fleet.status


def test_what_was_written_is_read_back_as_the_same() -> None:
    """Else every pass would write."""
    status = of(world(worker(0, failure=problem(Code.RELOAD_FAILED)), worker(1), **TO_2))

    assert FleetStatus.model_validate_json(dumped(status)) == status


# --- counts -----------------------------------------------------------------------------------

ENDING = replace(worker(2), pod=pod(2, terminating=True))
GONE = Worker("qwen-2", 2)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker(0), worker(1)], ("2/2", 2, 2, 0, "step-1")),
        ([worker(0), worker(1, proved="step-0")], ("1/2", 2, 2, 0, "")),
        ([worker(0), worker(1, Stage.DOUBT)], ("1/2", 2, 1, 1, "step-1")),
        ([worker(0), worker(1, Stage.CLOSED)], ("1/2", 2, 1, 0, "step-1")),
        ([worker(0), worker(1), ENDING], ("2/3", 3, 2, 0, "step-1")),
        ([worker(0), worker(1), GONE], ("2/3", 2, 2, 0, "step-1")),
        ([worker(0), replace(worker(1), reachable=False)], ("1/2", 2, 2, 0, "step-1")),
        ([worker(0), replace(worker(1, proved="step-0"), reachable=False)], ("1/2", 2, 2, 0, "")),
        ([worker(0), replace(worker(1), reachable=False, report=None)], ("1/2", 2, 2, 0, "")),
        ([], ("0/0", 0, 0, 0, "")),
    ],
    ids=[
        "all",
        "mixed",
        "one in doubt",
        "one on its way",
        "one ends",
        "one is missing",
        "one missed a question",
        "one cannot be asked and serves another",
        "one was never asked",
        "none",
    ],
)
def test_what_is_counted(workers: list[Worker], expected: tuple[Any, ...]) -> None:
    found = of(world(*workers, status=recorded("step-1", "Completed")))

    counts = (found.proved, found.replicas, found.ready_replicas, found.quarantined_replicas)
    assert (*counts, found.serving) == expected
    assert f"{found.proved_replicas}/{len(workers)}" == found.proved


def test_without_a_version_every_proved_worker_counts() -> None:
    found = of(world(worker(0), worker(1, proved="step-9"), weightVersion=None))

    assert (found.target, found.serving, found.proved) == ("", "", "2/2")


def test_status_has_the_target_and_the_selector() -> None:
    found = of(world(worker(0)))

    assert (found.observed_generation, found.target) == (1, "step-1")
    assert found.selector == "rlfleet.dev/fleet=qwen"


# --- workers ----------------------------------------------------------------------------------


def test_a_list_that_is_cut_names_the_worst_first() -> None:
    workers = [
        worker(0),
        worker(1),
        worker(2, Stage.CLOSED),
        worker(3, Stage.DOUBT),
        replace(worker(4), reachable=False),
        worker(5, Stage.DOUBT),
    ]
    found = of(world(*workers, statusWorkerLimit=4))

    assert [w.name for w in found.workers] == ["qwen-3", "qwen-5", "qwen-4", "qwen-2"]
    assert found.workers_truncated == 2


def test_a_list_that_is_not_cut_keeps_the_workers_order() -> None:
    found = of(world(worker(0), worker(1, Stage.DOUBT), statusWorkerLimit=2))

    assert [w.name for w in found.workers] == ["qwen-0", "qwen-1"]
    assert found.workers_truncated == 0


def test_the_status_of_a_worker() -> None:
    change = Change(
        operation="o", version="step-1", finished_at=1, timings=Timings(window_s=0.2504)
    )
    long = Problem.of(Code.RELOAD_FAILED, "x" * 5000, version="step-2")
    (found,) = of(world(worker(0, last_change=change, failure=long))).workers

    assert (found.name, found.phase, found.version) == ("qwen-0", "Serving", "step-1")
    assert (found.ready, found.window_ms) == (True, 250)
    assert found.message is not None
    assert len(found.message) == 256


def test_status_shows_the_proof_of_the_served_version_and_of_no_other() -> None:
    shown = proof("step-1", verified_by=(Evidence.PROBE, Evidence.PEERS))
    seen = world(worker(0, proof=shown), worker(1, proof=proof("step-0")), worker(2, proof=None))

    assert [w.verified_by for w in of(seen).workers] == [["Probe", "Peers"], None, None]


@pytest.mark.parametrize(("share", "percent"), [(0.999, 99), (1.0, 100), (0.0, 0), (None, None)])
def test_how_much_of_its_memory_a_worker_has_read_back_is_never_rounded_up(
    share: float | None, percent: int | None
) -> None:
    (found,) = of(world(worker(0, proof=proof("step-1", read_share=share)))).workers

    assert found.read_back_percent == percent


def test_the_largest_list_of_workers_fits_into_the_object() -> None:
    version = "v" * 128
    told = Problem.of(Code.RELOAD_FAILED, "x" * 5000, version=version, operation="rollout-1")
    shown = proof("step-1", verified_by=tuple(Evidence))
    workers = [
        replace(worker(place, Stage.DOUBT, failure=told, proof=shown), name=f"{'n' * 50}-{place}")
        for place in range(256)
    ]
    found = of(world(*workers, weightVersion=version, status=recorded(version, "Preparing")))

    assert len(found.workers) == 256
    assert len(dumped(found)) < SIZE_LIMIT


# --- the rollout ------------------------------------------------------------------------------


def test_a_rollout_is_on_record_before_anything_is_done_for_it() -> None:
    found = rollout_of(world(worker(0), weightVersion="step-2"))

    assert found == RolloutStatus(
        id=1,
        asked="step-2",
        from_version="step-1",
        to="step-2",
        phase="Preparing",
        started_at=NOW,
        replicas=1,
    )


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([Worker("qwen-0", 0)], "Waiting"),
        ([worker(0), worker(1)], "Preparing"),
        ([worker(0), worker(1, Stage.PAUSED)], "Pausing"),
        ([worker(0, Stage.PAUSED), worker(1, Stage.LOADING)], "Reloading"),
        ([worker(0, Stage.LOADED), worker(1, Stage.LOADING)], "Verifying"),
        ([worker(0), worker(1, Stage.PROVED, proved="step-2")], "Resuming"),
        ([worker(0), worker(1, proved="step-2")], "Updating"),
        ([worker(0, refusal=problem(Code.CHECKPOINT_INVALID)), worker(1)], "Refused"),
        ([worker(0, proved="step-2"), worker(1, proved="step-2")], "Completed"),
        ([worker(0, Stage.DOUBT, failure=problem(Code.PROOF_FAILED)), worker(1)], "Failed"),
        ([], "Waiting"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rollout_is_as_far_as_its_furthest_worker(workers: list[Worker], expected: str) -> None:
    assert rollout_of(world(*workers, **TO_2)).phase == expected


def test_a_version_that_every_worker_has_is_complete_with_its_first_record() -> None:
    """WeightsSynced is true in the same write: a later request supersedes nothing."""
    rollout = rollout_of(world(worker(0), worker(1)))

    assert (rollout.phase, rollout.finished_at) == ("Completed", rollout.started_at)


def test_a_busy_worker_is_not_counted_on() -> None:
    """A command of an earlier rollout may take it elsewhere."""
    busy = replace(worker(1), calling=Verb.RELOAD)

    status = of(world(worker(0), busy))

    assert status.rollout is not None
    assert status.rollout.phase != "Completed"
    assert {c.type: c.status for c in status.conditions}["WeightsSynced"] == "False"


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker(0, refusal=problem(Code.PATH_REFUSED))], "qwen-0: PathRefused: why"),
        (
            [worker(0), worker(1, failure=problem(Code.PAUSE_FAILED))],
            "qwen-1: PauseFailed: why",
        ),
        ([worker(0, failure=problem(Code.PAUSE_FAILED, "step-1", "rollout-0"))], ""),
        ([worker(0)], ""),
    ],
    ids=["a refusal", "a failure", "an older rollout's", "nothing"],
)
def test_a_rollout_says_what_is_wrong_with_it(workers: list[Worker], expected: str) -> None:
    assert rollout_of(world(*workers, **TO_2)).message == expected


def test_a_rollout_s_message_has_an_end() -> None:
    told = Problem.of(Code.CHECKPOINT_INVALID, "x" * 9999, version="step-2", operation="rollout-1")

    assert len(rollout_of(world(worker(0, refusal=told), **TO_2)).message) == 1024


def test_the_end_of_a_rollout_is_dated_once() -> None:
    seen = world(worker(0, proved="step-2"), **TO_2)
    ended = of(replace(seen, moment=MOMENT + 12.34))
    assert ended.rollout is not None
    later = replace(seen, moment=MOMENT + 99, fleet=replace(seen.fleet, status=ended))

    assert (ended.rollout.finished_at, ended.rollout.seconds) == ("2023-11-14T22:13:32Z", 12.3)
    assert of(later).rollout == ended.rollout


def test_a_completed_rollout_is_left_as_it_is_when_a_worker_joins_late() -> None:
    status = recorded("step-2", "Completed", finishedAt=NOW, seconds=1.0)
    seen = world(worker(0, proved="step-2"), worker(1, Stage.CLOSED), **TO_2 | {"status": status})

    assert rollout_of(seen) == seen.fleet.status.rollout


def test_what_was_recorded_stays_when_the_version_is_taken_out_of_the_spec() -> None:
    seen = world(worker(0), weightVersion=None, status=recorded("step-2", "Completed"))
    known = seen.fleet.status.rollout
    assert known is not None

    assert of(seen).rollout == known.model_copy(update={"withdrawn": True})
    assert of(seen).target == ""


def test_a_rollout_whose_version_leaves_the_spec_is_over() -> None:
    copies = {"percent": 50, "totalBytes": 100, "workers": 1}
    status = recorded("step-2", "Refused", message="step-2 is incomplete", copies=copies)
    found = of(seen := world(worker(0), weightVersion=None, status=status)).rollout

    assert found is not None
    assert (found.phase, found.message) == (
        "Superseded",
        "cancelled: step-2 is no longer requested",
    )
    assert found.copies is None
    assert (found.finished_at, found.seconds) == ("2023-11-14T22:13:20Z", 0.0)
    assert rollout_of(recorded_as(seen, found)) == found, "it is recorded once"
    assert plan(asked_again(recorded_as(seen, found))).rollout is not None


def recorded_as(seen: World, rollout: RolloutStatus) -> World:
    status = seen.fleet.status.model_copy(update={"rollout": rollout, "target": ""})
    return replace(seen, fleet=replace(seen.fleet, status=status), moment=seen.moment + 60)


def asked_again(seen: World) -> World:
    return fleets.asking(seen, weight_version="step-2")


def test_timings_are_those_of_this_rollout_s_changes() -> None:
    def changed(ordinal: int, operation: str, window_s: float) -> Worker:
        timings = Timings(reload_s=window_s / 2, window_s=window_s)
        change = Change(operation=operation, version="step-2", finished_at=1, timings=timings)
        return worker(ordinal, proved="step-2", last_change=change)

    workers = [
        changed(0, "rollout-1", 0.1),
        changed(1, "rollout-1", 0.4),
        changed(2, "rollout-1", 0.2),
        changed(3, "rollout-0", 9.0),
    ]
    timings = rollout_of(world(*workers, **TO_2)).timings

    assert timings is not None
    assert timings.window is not None
    assert timings.reload is not None
    window = timings.window
    assert (window.min_ms, window.median_ms, window.max_ms) == (100, 200, 400)
    assert timings.reload.max_ms == 200


def test_prepared_bytes_are_updated_with_the_timings_and_kept_in_history() -> None:
    prepared: dict[str, Any] = {"prepared": "step-2", "prepared_bytes": 1_500}
    change = Change(operation="rollout-1", version="step-2", finished_at=1, timings=Timings())
    waiting = [worker(n, **prepared) for n in range(2)]
    changed = [worker(0, proved="step-2", last_change=change, **prepared), waiting[1]]

    assert rollout_of(world(*waiting, **TO_2)).prepared_bytes is None
    status = of(world(*changed, **TO_2))
    assert status.rollout is not None
    assert status.rollout.prepared_bytes == 1_500
    known = {"weightVersion": "step-3", "status": json.loads(dumped(status))}
    following = of(world(*changed, **known))
    assert following.rollout is not None
    assert (following.rollout.to, following.rollout.prepared_bytes) == ("step-3", None)
    assert following.history[0].prepared_bytes == 1_500


def test_a_fleet_without_a_driver_reports_it_and_keeps_the_rest_of_its_status() -> None:
    before = FleetStatus(
        observed_generation=6,
        serving="step-1",
        conditions=[
            condition("Ready", generation=6),
            condition("Reconciling", generation=6),
            condition("Stalled", generation=6, reason="ObjectRefused"),
        ],
    )
    fleet = replace(fleets.fleet(), generation=7, status=before)

    told = abandoned(fleet, "internal error: TypeError: x", 100.0)

    assert (told.serving, told.observed_generation) == ("step-1", 7)
    ready, stalled = told.conditions
    assert ready == before.conditions[0]
    assert (stalled.type, stalled.status, stalled.reason) == ("Stalled", "True", "InternalError")
    assert stalled.observed_generation == 7
    assert stalled.message.startswith("internal error: TypeError: x; ")
    # Only a change of a condition's status has a time.
    assert stalled.last_transition_time == "2026-01-01T00:00:00Z"


def condition(kind: str, *, generation: int, reason: str = "X") -> Condition:
    return Condition(
        type=kind,
        status="True",
        reason=reason,
        message="",
        last_transition_time="2026-01-01T00:00:00Z",
        observed_generation=generation,
    )


def shown(*workers: Worker, **fields: Any) -> SelfTestStatus:
    found = of(world(*workers, **fields)).self_test
    assert found is not None
    return found


def known(**fields: object) -> dict[str, object]:
    return {
        "key": "k",
        "engine": "vLLM 0.33.0 (cpu) with Qwen3ForCausalLM",
        "passed": True,
    } | fields


def test_status_keeps_what_engines_showed_of_their_reload_and_a_failure_first() -> None:
    good = worker(0, self_test=known(distance=0.0, kinds=13))
    bad = worker(1, self_test=known(passed=False, reason="experts stay", stale=["experts"]))
    running = worker(1, self_test=known(passed=None))

    assert (shown(good, bad).passed, shown(good, bad).stale) == (False, ["experts"])
    assert (shown(good, running).passed, shown(good, running).kinds) == (True, 13)
    assert of(world(running)).self_test is None


@pytest.mark.parametrize(
    ("reported", "revision"),
    [
        (("2", "2"), "2"),
        (("2", "1"), "1"),
        ((None, "2"), "1"),
        (("2", "3"), "1"),
    ],
    ids=["all", "one behind", "an earlier image", "one ahead"],
)
def test_a_token_s_revision_counts_once_every_worker_has_mounted_it(
    reported: tuple[str | None, ...], revision: str
) -> None:
    workers = [worker(n, token_revision=found) for n, found in enumerate(reported)]
    seen = replace(world(*workers, status={"tokenRevision": "1"}), token_revision="2")

    assert of(seen).token_revision == revision


def test_a_worker_that_does_not_answer_may_have_an_older_token() -> None:
    silent = replace(worker(1, token_revision="2"), reachable=False)
    seen = replace(world(worker(0, token_revision="2"), silent), token_revision="2")

    assert of(seen).token_revision is None


def test_status_remembers_it_for_the_present_template_only() -> None:
    found = shown(worker(0, self_test=known(kinds=13)))
    silent = worker(0)
    kept = found.model_dump(by_alias=True)

    assert shown(silent, status={"selfTest": kept}) == found
    assert of(world(silent, status={"selfTest": kept | {"template": "old"}})).self_test is None
