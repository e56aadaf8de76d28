"""The gauges of a fleet, whatever its size."""

from typing import Any

import pytest

from rlfleet_contract.worker.report import Progress, Stage
from rlfleet_operator.core.metrics.gauges import FAMILIES, Sample, condition_samples, gauges
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.rollout.next_rollout import current
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_status import FleetStatus
from tests import workers

DONE = {"finishedAt": "2023-11-14T22:13:30Z", "seconds": 10.0}
"""The workers' moment is 22:13:20."""


def shown(world: World, **status: Any) -> dict[tuple[str, ...], float]:
    """Return the gauges by name and labels; ``status`` replaces fields."""
    made = status_of(world, current(world)).model_copy(update=status)
    return {(name, *labels): value for name, value, labels in gauges(world, made)}


def test_every_worker_counts_though_status_lists_few() -> None:
    serving = [workers.worker(n) for n in range(5)]
    doubtful = [workers.worker(5 + n, Stage.DOUBT) for n in range(4)]

    found = shown(workers.world(*serving, *doubtful, statusWorkerLimit=2))

    assert found["rlfleet_workers", "Serving"] == 5
    assert found["rlfleet_workers", "Quarantined"] == 4
    assert found["rlfleet_workers", "Starting"] == 0
    assert found[("rlfleet_desired_workers",)] == 9
    assert found[("rlfleet_ready_workers",)] == 5
    assert found[("rlfleet_proved_workers",)] == 5


def test_each_type_of_condition_has_one_value() -> None:
    found = {
        sample.labels: sample.value
        for sample in condition_samples(
            [("Ready", "False", "InsufficientWorkers"), ("Stalled", "True", "CacheFull")]
        )
    }

    assert found["Ready", "InsufficientWorkers"] == 0
    assert found["Stalled", "CacheFull"] == 1
    assert found["Degraded", ""] == 0
    assert len(found) == 7


def test_a_version_has_its_name_its_number_and_its_time_by_use() -> None:
    recorded = workers.recorded("step-1", "Completed", **DONE)
    world = workers.world(workers.worker(), status=recorded, weightVersion="step-2")

    found = shown(world)

    assert found["rlfleet_version_info", "serving", "step-1"] == 1
    assert found["rlfleet_version_info", "target", "step-2"] == 1
    assert found["rlfleet_version_number", "serving"] == 1
    assert found["rlfleet_version_number", "target"] == 2
    assert ("rlfleet_version_number", "latest") not in found


@pytest.mark.parametrize(
    ("recorded", "since"),
    [
        (workers.recorded("step-1", "Completed", **DONE), workers.MOMENT + 10),
        (workers.recorded("step-1", "Updating"), None),
        (
            workers.recorded("step-2", "Updating")
            | {
                "history": [
                    {
                        "id": 1,
                        "to": "step-1",
                        "result": "Completed",
                        "startedAt": "2023-11-14T22:00:00Z",
                        "seconds": 20.0,
                    }
                ]
            },
            workers.MOMENT - 800 + 20,
        ),
    ],
    ids=["the last rollout", "one under way", "an earlier rollout"],
)
def test_a_version_s_age_begins_when_all_workers_serve_it(
    recorded: dict[str, Any], since: float | None
) -> None:
    status = FleetStatus.model_validate(recorded | {"serving": "step-1"})
    world = workers.world(workers.worker())

    found = {(s.name, *s.labels): s.value for s in gauges(world, status)}

    assert found.get(("rlfleet_version_timestamp_seconds", "serving")) == since


CREATED, SEEN, BEGUN = workers.MOMENT - 9000, workers.MOMENT - 600, workers.MOMENT
"""When a fleet was created, saw its latest version, and began its last rollout."""
LATEST = {"latest": {"version": "step-1", "since": "2023-11-14T22:03:20Z"}}


@pytest.mark.parametrize(
    ("status", "spec", "since"),
    [
        ({}, {}, CREATED),
        (LATEST, {}, SEEN),
        (LATEST | workers.recorded("step-1", "Completed", **DONE), {}, BEGUN),
        (LATEST, {"weightVersion": "step-1"}, None),
        (LATEST, {"rollout": {"paused": True}}, None),
        (LATEST, {"weights": {"path": "/weights/{version}"}}, None),
    ],
    ids=["no version seen", "seen", "a rollout after it", "pinned", "paused", "does not follow"],
)
def test_a_fleet_waits_for_a_version_only_while_it_follows_and_nothing_holds_it(
    status: dict[str, Any], spec: dict[str, Any], since: float | None
) -> None:
    follows = {"path": "/weights/{version}", "follow": "Latest"}
    wanted = {"weightVersion": None, "weights": follows} | spec
    world = workers.world(workers.worker(), **wanted)

    found = {s.name: s.value for s in gauges(world, FleetStatus.model_validate(status))}

    assert found.get("rlfleet_follow_timestamp_seconds") == since


def test_versions_that_differ_serve_as_none() -> None:
    other = workers.worker(1, proved="step-3")

    found = shown(workers.world(workers.worker(), other))

    assert not [labels for labels in found if "serving" in labels]
    assert found[("rlfleet_version_skew",)] == 2


def test_a_number_that_no_float_holds_is_left_out() -> None:
    version = "step-" + "9" * 100

    found = shown(workers.world(workers.worker(), weightVersion=version))

    assert found["rlfleet_version_info", "target", version] == 1
    assert ("rlfleet_version_number", "target") not in found


def test_the_bytes_of_all_copies_under_way_are_added_up() -> None:
    copies = [
        workers.worker(n, progress=Progress(version="step-2", bytes_done=10 * n, bytes_total=100))
        for n in range(3)
    ]

    found = shown(workers.world(*copies, workers.worker(3)))

    assert found[("rlfleet_prepare_done_bytes",)] == 30
    assert found[("rlfleet_prepare_wanted_bytes",)] == 300


def test_a_fleet_of_a_thousand_has_as_many_series_as_one_of_ten() -> None:
    few, many = (
        shown(workers.world(*(workers.worker(n) for n in range(count)))) for count in (10, 1000)
    )

    assert few.keys() == many.keys()
    assert len(many) < 60


def test_each_gauge_belongs_to_a_family_with_its_labels() -> None:
    world = workers.world(workers.worker())
    samples: list[Sample] = gauges(world, status_of(world, current(world)))

    assert {s.name for s in samples} <= FAMILIES.keys()
    assert all(len(s.labels) == len(FAMILIES[s.name].labels) for s in samples)
