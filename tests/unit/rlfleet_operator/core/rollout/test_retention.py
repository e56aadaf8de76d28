"""What a fleet needs of its store, and what its status says of the rest."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Newest, Running
from rlfleet_contract.worker.retention import MOST_NEEDED, Needs, Unneeded
from rlfleet_operator.core.model.world import Worker, World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.rollout.retention import needs, retention
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.retention import RetentionStatus
from tests import workers

WEIGHTS = {"source": {"url": "s3://b/{version}"}, "retention": {"keep": 5}}
SINCE = "2020-01-01T00:00:00Z"


def world(*members: Worker, status: dict[str, Any] | None = None, **spec: Any) -> World:
    return workers.world(*members, status=status, **({"weights": WEIGHTS} | spec))


def needed(seen: World) -> set[str]:
    found = needs(seen, plan(seen).rollout)
    return set() if found is None else set(found.versions)


def test_a_fleet_without_retention_asks_no_worker() -> None:
    seen = world(workers.worker(), weights={"source": {"url": "s3://b/{version}"}})

    assert needs(seen, plan(seen).rollout) is None
    assert retention(seen) is None


@pytest.mark.parametrize("keep", [None, 3])
def test_the_number_to_keep_is_the_spec_s(keep: int | None) -> None:
    weights = WEIGHTS | {"retention": {} if keep is None else {"keep": keep}}
    seen = world(workers.worker(), weightVersion="step-9", weights=weights)

    found = needs(seen, plan(seen).rollout)

    assert found == Needs(versions=found.versions if found else [], keep=keep)


FIELDS: dict[str, dict[str, Any]] = {
    "proved": {"proved": "step-77"},
    "installed": {"installed": "step-77"},
    "prepared": {"prepared": "step-77"},
    "taken up": {"running": Running(verb=Verb.PREPARE, operation="o", version="step-77")},
    "newest": {"newest": Newest(version="step-77", found_at=1.0)},
}


@pytest.mark.parametrize("what", sorted(FIELDS))
def test_what_a_worker_holds_is_needed(what: str) -> None:
    assert "step-77" in needed(world(workers.worker(0), workers.worker(1, **FIELDS[what])))


@pytest.mark.parametrize(
    "status",
    [
        {"target": "step-77"},
        {"serving": "step-77"},
        {"latest": {"version": "step-77", "since": SINCE}},
        {"followed": {"version": "step-77", "since": SINCE}},
        {"trainerTarget": {"version": "step-77", "askedAt": SINCE}},
        workers.recorded("step-77", "Preparing"),
        workers.recorded("step-78", "Preparing", **{"from": "step-77"}),
        workers.recorded("step-78", "Completed", asked="step-77"),
        workers.recorded("step-78", "Partitioned", kept="step-77"),
    ],
)
def test_what_the_fleet_goes_to_or_comes_from_is_needed(status: dict[str, Any]) -> None:
    assert "step-77" in needed(world(workers.worker(), status=status))


def test_a_new_target_is_needed_before_it_is_in_status() -> None:
    assert "step-77" in needed(world(workers.worker(), weightVersion="step-77"))


def test_a_worker_that_does_not_answer_still_needs_what_it_served() -> None:
    silent = replace(workers.worker(1, proved="step-77"), reachable=False)

    assert "step-77" in needed(world(workers.worker(0), silent))


def test_a_fleet_that_needs_too_many_asks_no_worker() -> None:
    members = [workers.worker(n, proved=f"step-{100 + n}") for n in range(MOST_NEEDED + 1)]

    assert needed(world(*members)) == set()
    assert needed(world(*members[:20])) >= {"step-100", "step-119"}


def test_the_base_model_is_in_no_store() -> None:
    seen = world(workers.worker(proved="base"), weightVersion="base")

    assert "base" not in needed(seen)


def test_status_says_what_a_worker_found() -> None:
    found = Unneeded(versions=["step-1"], count=3, deleted=2, error="denied")
    seen = world(workers.worker(0), workers.worker(1, unneeded=found))

    expected = RetentionStatus(
        worker="qwen-1", unneeded=["step-1"], count=3, deleted=2, message="denied"
    )
    assert status_of(seen, None).retention == expected
    later = world(workers.worker(0), status={"retention": expected.model_dump(by_alias=True)})
    assert retention(later) == expected
