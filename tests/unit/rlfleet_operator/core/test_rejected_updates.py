"""What status says of trainers that workers rejected while their fleet is asked for a version."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_operator.crd.fleet_status import FleetStatus
from tests import fleets
from tests.workers import worker, world


def of(seen: World) -> FleetStatus:
    return fleets.readable(status_of(seen, plan(seen).rollout))


def rejected(at: float, client: str = "10.0.0.9 (prime)") -> dict[str, Any]:
    return {"rejected_trainer": {"client": client, "call": "POST /pause", "at": at}}


def test_a_trainer_that_every_worker_rejects_has_one_event() -> None:
    first = of(world(worker(0, **rejected(1000)), worker(1), weightVersion="step-1"))
    seen = world(worker(0), worker(1, **rejected(1003)), weightVersion="step-1")
    known = replace(seen, fleet=replace(seen.fleet, status=first))

    assert first.trainer_rejected is not None
    assert first.trainer_rejected.worker == "qwen-0"
    assert of(known).trainer_rejected == first.trainer_rejected


@pytest.mark.parametrize("news", [rejected(1003, "another"), rejected(1100)])
def test_another_trainer_or_the_same_later_is_news(news: dict[str, Any]) -> None:
    first = of(world(worker(0, **rejected(1000)), worker(1), weightVersion="step-1"))
    seen = world(worker(0), worker(1, **news), weightVersion="step-1")
    known = replace(seen, fleet=replace(seen.fleet, status=first))

    told = of(known).trainer_rejected

    assert told is not None
    assert told.worker == "qwen-1"


def test_a_fleet_without_a_target_reports_no_rejection() -> None:
    seen = world(worker(0, **rejected(1000)), weightVersion=None)

    assert of(seen).trainer_rejected is None
