"""What reports add to counters: each fact once, crashes apart from failed proofs."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Change, Exits, Stage, Timings
from rlfleet_operator.core.metrics.additions import (
    EXITED,
    FAILURES,
    OTHER,
    REJECTIONS,
    Additions,
    Tally,
    between,
)
from rlfleet_operator.core.model.world import Worker
from tests import workers

CHANGED = Change(
    operation="rollout-1", version="step-2", finished_at=1.0, timings=Timings(window_s=0.5)
)
EXITS = Exits(version="step-2", operation="rollout-1", count=2)
NOTHING = Additions()


def added(before: dict[str, Any], after: dict[str, Any]) -> Additions:
    return between(workers.report(**before), workers.report(**after))


def failed(code: Code, **more: Any) -> dict[str, Any]:
    return {"stage": Stage.DOUBT, "failure": workers.problem(code)} | more


def refused(code: Code) -> dict[str, Any]:
    return {"refusal": workers.problem(code)}


@pytest.mark.parametrize(
    ("before", "after", "adds"),
    [
        ({}, {"last_change": CHANGED}, Additions(change=CHANGED.timings)),
        ({"last_change": CHANGED}, {"last_change": CHANGED}, NOTHING),
        ({}, {"prepared": "step-2", "prepared_bytes": 7}, Additions(prepared_bytes=7)),
        ({"prepared": "step-2"}, {"prepared": "step-2", "prepared_bytes": 7}, NOTHING),
        ({}, refused(Code.CHECKPOINT_INVALID), Additions(rejection="CheckpointInvalid")),
        (refused(Code.CACHE_FULL), refused(Code.CACHE_FULL), NOTHING),
        (refused(Code.CACHE_FULL), {}, NOTHING),
        ({}, refused(Code.INTERNAL), Additions(rejection=OTHER)),
        ({}, failed(Code.PROOF_FAILED), Additions(failure="ProofFailed")),
        (failed(Code.PROOF_FAILED), failed(Code.PROOF_FAILED), NOTHING),
        ({}, failed(Code.ENGINE_UNREACHABLE), Additions(failure=OTHER)),
        ({}, failed(Code.RELOAD_FAILED, exits=EXITS), Additions(exits=2)),
        ({"exits": EXITS}, {"exits": EXITS}, NOTHING),
        ({"exits": EXITS}, {"exits": EXITS.model_copy(update={"count": 3})}, Additions(exits=1)),
        (
            {"exits": EXITS},
            {"exits": Exits(version="step-3", operation="rollout-2", count=1)},
            Additions(exits=1),
        ),
    ],
)
def test_a_report_adds_what_is_new_in_it(
    before: dict[str, Any], after: dict[str, Any], adds: Additions
) -> None:
    assert added(before, after) == adds


def test_each_code_has_a_series_that_begins_at_0() -> None:
    for code in Code:
        assert added({}, failed(code)).failure in FAILURES
        assert added({}, refused(code)).rejection in REJECTIONS
    assert EXITED in FAILURES


def one(**fields: Any) -> Worker:
    return workers.worker(0, **fields)


def test_a_first_report_adds_nothing() -> None:
    """An earlier operator may have counted it."""
    tally = Tally()

    assert list(tally.add([replace(one(), report=None)])) == []
    assert list(tally.add([one(last_change=CHANGED)])) == []


def test_a_new_pod_s_first_report_adds_nothing() -> None:
    tally = Tally()
    list(tally.add([one()]))

    new = replace(one(last_change=CHANGED), pod=workers.pod(uid="another"))

    assert list(tally.add([new])) == []


def test_a_worker_that_did_not_change_is_not_looked_at() -> None:
    tally, worker = Tally(), one(last_change=CHANGED)
    changed = one(last_change=CHANGED.model_copy(update={"finished_at": 2.0}))
    list(tally.add([one()]))

    assert len(list(tally.add([worker]))) == 1
    assert list(tally.add([worker])) == []
    assert [a.change for a in tally.add([changed])] == [CHANGED.timings]
