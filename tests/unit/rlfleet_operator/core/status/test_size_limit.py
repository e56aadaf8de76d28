"""A status fits into etcd, and names what it leaves out."""

import json
from typing import Any

import pytest

from rlfleet_contract.worker.loaded_lora import AdapterReport
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.status.fleet import patch_of, status_of
from rlfleet_operator.core.status.size_limit import LEAST, LIMIT, after_refusal
from rlfleet_operator.crd.fleet_status import FleetStatus
from tests import workers

PAST = {
    "id": 1,
    "to": "step-0",
    "result": "Completed",
    "startedAt": "2023-11-14T22:13:20Z",
    "seconds": 1.0,
    "message": "\N{SNOWMAN}" * 256,
}


def fleet(count: int, adapters: int, name: int = 64, **spec: Any) -> World:
    """Return the world of so many workers, each with so many adapters of a trainer."""
    loaded = [
        AdapterReport(
            name=f"{n:03d}".ljust(name, "n"),
            version="v" * name,
            path="/weights/x",
            digest="d" * 64,
            is_loaded=True,
            is_declared=False,
        )
        for n in range(adapters)
    ]
    found = [workers.worker(n, adapters=loaded) for n in range(count)]
    status = workers.recorded("step-1", "Completed") | {"history": [PAST] * 50}
    return workers.world(*found, status=status, historyLimit=50, **spec)


def status_for(seen: World, limit: int = LIMIT) -> FleetStatus:
    return status_of(seen, current(seen), limit)


def size(status: FleetStatus) -> int:
    return len(json.dumps(patch_of(status), ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("count", "adapters", "name"),
    [(256, 64, 64), (256, 64, 128), (256, 200, 24), (300, 8, 24)],
)
def test_a_status_fits_into_etcd_however_many_adapters_there_are(
    count: int, adapters: int, name: int
) -> None:
    status = status_for(fleet(count, adapters, name, statusWorkerLimit=512))

    assert size(status) < LIMIT * 1.01
    assert len(status.workers) == count
    assert status.replicas == count


def test_what_fits_leaves_nothing_out() -> None:
    status = status_for(fleet(4, 8))

    assert status.left_out == []
    assert [len(w.adapters or ()) for w in status.workers] == [8] * 4
    assert "leftOut" in patch_of(status)


@pytest.mark.parametrize(
    ("limit", "left_out"),
    [
        (90_000, ["workers[].adapters"]),
        (60_000, ["workers[].adapters", "workers, the best first"]),
        (LEAST, ["workers[].adapters", "workers, the best first", "history"]),
    ],
)
def test_details_go_in_a_fixed_order_and_are_named(limit: int, left_out: list[str]) -> None:
    seen = fleet(256, 8)

    status = status_for(seen, limit)

    assert size(status) < limit * 1.05
    assert status.left_out == left_out
    assert len(status.workers) + status.workers_truncated == 256
    # What a driver goes by stays.
    assert status.rollout == seen.fleet.status.rollout
    assert [c.type for c in status.conditions] == [c.type for c in status_for(seen).conditions]


def test_the_workers_that_stay_are_the_worst() -> None:
    seen = fleet(64, 0)
    bad = workers.worker(60, Stage.DOUBT)
    seen = workers.world(*seen.workers[:60], bad, *seen.workers[61:])

    status = status_for(seen, 3000)

    assert status.workers[0].name == "qwen-60"
    assert status.workers_truncated > 32


def test_equal_worlds_give_equal_statuses_when_details_are_left_out() -> None:
    assert status_for(fleet(64, 8), 9000) == status_for(fleet(64, 8), 9000)


@pytest.mark.parametrize(("limit", "after"), [(LIMIT, "half"), (100, LEAST)])
def test_a_refused_status_is_halved_down_to_the_least(limit: int, after: object) -> None:
    status = status_for(fleet(256, 8))
    expected = pytest.approx(size(status) / 2, rel=0.02) if after == "half" else after

    assert after_refusal(status, limit) == expected
