"""What a prepare requests, and what status shows while it waits and copies."""

from typing import Any

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Progress, Stage, WorkerReport
from rlfleet_operator.core.model.actions import Prepare
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import patch_of, status_of
from rlfleet_operator.crd.rollout_spec import RolloutSpec
from rlfleet_operator.crd.rollout_status import CopyProgress
from tests.workers import recorded, worker, world

DIGEST = f"sha256:{'a' * 64}"
WEIGHTS = {"path": "/weights/{version}", "digest": DIGEST}
MIB = 1024 * 1024


def asking(*seen: Any, **spec: Any) -> World:
    status = recorded("step-2", "Preparing")
    return world(*seen, status=status, weightVersion="step-2", weights=WEIGHTS, **spec)


def prepares(seen: World) -> list[Prepare]:
    return [action for action in plan(seen).actions if isinstance(action, Prepare)]


def waiting(ordinal: int, progress: Progress) -> Any:
    running = {"verb": Verb.PREPARE, "operation": "rollout-1", "version": progress.version}
    return worker(ordinal, running=running, progress=progress)


def test_the_digest_goes_with_the_version_that_it_is_about() -> None:
    assert [p.digest for p in prepares(asking(worker(0)))] == [DIGEST]


def test_a_fallback_is_not_compared_with_the_target_s_digest() -> None:
    held_back = asking(worker(0, Stage.CLOSED), rollout={"paused": True})

    assert [(p.version, p.digest) for p in prepares(held_back)] == [("step-1", None)]


def test_only_a_worker_that_serves_or_has_nothing_to_serve_waits_for_its_version() -> None:
    seen = asking(worker(0), worker(1, Stage.CLOSED))
    fresh = world(
        worker(0, Stage.CLOSED),
        status=recorded("step-2", "Preparing", **{"from": ""}),
        weightVersion="step-2",
    )

    assert {p.worker: p.waits for p in prepares(seen)} == {"qwen-0": True, "qwen-1": False}
    assert [p.waits for p in prepares(fresh)] == [True]


@pytest.mark.parametrize(("waits", "wait_s"), [(True, None), (False, 0)])
def test_a_prepare_has_its_timeout_and_its_digest(*, waits: bool, wait_s: float | None) -> None:
    rollout = RolloutSpec.model_validate({"timeouts": {"prepareSeconds": 7}})

    body = Prepare("qwen-0", "step-2", "rollout-1", DIGEST, waits).request(rollout)

    assert body.model_dump(include={"timeout_s", "wait_s", "digest"}) == {
        "timeout_s": 7,
        "wait_s": wait_s,
        "digest": DIGEST,
    }


def test_status_shows_what_a_prepare_waits_for_and_is_not_stalled() -> None:
    awaited = Progress(version="step-2", waiting_for="/weights/step-2 has no marker STABLE")
    status = status_of(*seen_and_rollout(asking(waiting(0, awaited), worker(1))))

    assert status.rollout is not None
    assert status.rollout.message == "qwen-0 waiting: /weights/step-2 has no marker STABLE"
    assert status.workers[0].message == "waiting: /weights/step-2 has no marker STABLE"
    assert (status.rollout.phase, status.workers[0].phase) == ("Preparing", "Preparing")
    assert "Stalled" not in {condition.type for condition in status.conditions}


def test_status_shows_the_progress_of_copies_in_tenths() -> None:
    half = Progress(version="step-2", bytes_done=59, bytes_total=100)
    none = Progress(version="step-2", bytes_total=100)
    status = status_of(*seen_and_rollout(asking(waiting(0, half), waiting(1, none))))

    assert status.rollout is not None
    assert status.rollout.copies == CopyProgress(percent=20, total_bytes=200, workers=2)


def copying(done: int, rate: float) -> Progress:
    """Return the progress of 1,000 MiB, of which so many are done, at so many a second."""
    return Progress(
        version="step-2",
        bytes_done=done * MIB,
        bytes_total=1000 * MIB,
        bytes_per_s=rate * MIB,
        left_s=(1000 - done) / rate,
    )


def test_status_shows_rate_and_time_left_once_a_step_of_the_copies() -> None:
    shown = CopyProgress(
        percent=20,
        total_bytes=2000 * MIB,
        bytes_per_second=200 * MIB,
        seconds_left=8,
        workers=2,
    )
    first = (waiting(0, copying(200, 100)), waiting(1, copying(200, 100)))
    later = (waiting(0, copying(290, 50)), waiting(1, copying(200, 40)))

    status = status_of(*seen_and_rollout(asking(*first)))
    assert status.rollout is not None
    assert status.rollout.copies == shown

    recorded_one = recorded("step-2", "Preparing", copies=shown.model_dump())
    seen = world(*later, status=recorded_one, weightVersion="step-2", weights=WEIGHTS)
    again = status_of(*seen_and_rollout(seen))
    assert again.rollout is not None
    assert again.rollout.copies == shown, "a rate that varies is no reason for a write"


def test_a_step_that_began_without_a_rate_gets_one() -> None:
    begun = CopyProgress(percent=0, total_bytes=1000 * MIB, workers=1)
    known = recorded("step-2", "Preparing", copies=begun.model_dump())
    workers = waiting(0, copying(50, 100)), worker(1)
    seen = world(*workers, status=known, weightVersion="step-2", weights=WEIGHTS)

    status = status_of(*seen_and_rollout(seen))

    assert status.rollout is not None
    rate = {"bytes_per_second": 100 * MIB, "seconds_left": 10}
    assert status.rollout.copies == begun.model_copy(update=rate)


def test_a_step_without_a_rate_leaves_none_of_the_step_before() -> None:
    before = {"percent": 90, "total_bytes": 100, "bytes_per_second": 7, "seconds_left": 1}
    known = recorded("step-2", "Preparing", copies=before | {"workers": 1})
    none = Progress(version="step-2", bytes_total=100)
    seen = world(waiting(0, none), status=known, weightVersion="step-2", weights=WEIGHTS)

    patched = patch_of(status_of(*seen_and_rollout(seen)))["rollout"]["copies"]

    # A merge patch keeps what it does not name.
    assert patched == {
        "percent": 0,
        "totalBytes": 100,
        "bytesPerSecond": None,
        "secondsLeft": None,
        "workers": 1,
    }
    assert patch_of(status_of(*seen_and_rollout(asking(worker(0)))))["rollout"]["copies"] is None


def test_a_prepare_of_another_version_says_nothing_of_this_rollout() -> None:
    awaited = Progress(version="step-9", waiting_for="nothing")
    copied = Progress(version="step-9", bytes_done=5, bytes_total=10)
    status = status_of(*seen_and_rollout(asking(waiting(0, awaited), waiting(1, copied))))

    assert status.rollout is not None
    assert status.rollout.message == ""
    assert status.rollout.copies is None


def test_an_older_sidecar_s_report_has_no_progress() -> None:
    report = WorkerReport.model_validate({"session": "s", "stage": "Open"})

    assert (report.progress, report.staged, report.prepared_bytes) == (None, [], None)


def seen_and_rollout(seen: World) -> tuple[World, Any]:
    return seen, plan(seen).rollout
