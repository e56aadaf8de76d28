"""Bars, and the operator's status that the first is read from."""

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Progress
from rlfleet_operator.core.plan import plan
from rlfleet_operator.core.status.fleet import status_of
from rlfleet_view import progress
from rlfleet_view.fleet import RolloutRow
from tests.workers import recorded, worker, world

GIB = 1024**3


def test_the_progress_that_the_operator_writes_is_read() -> None:
    part = Progress(
        version="step-2", bytes_done=GIB, bytes_total=4 * GIB, bytes_per_s=GIB / 4, left_s=12.0
    )
    running = {"verb": Verb.PREPARE, "operation": "rollout-1", "version": "step-2"}
    seen = world(
        worker(0, running=running, progress=part),
        status=recorded("step-2", "Preparing"),
        weightVersion="step-2",
    )
    written = status_of(seen, plan(seen).rollout).rollout
    assert written is not None
    row = RolloutRow.of(written.model_dump(by_alias=True, mode="json", exclude_none=True))

    share = progress.prepared(row)
    assert share == progress.PartDone(0.2, "20% of 4.0 GiB, 256.0 MiB/s, 12 s left")


def test_copies_without_a_rate_have_no_time_left() -> None:
    copies = {"percent": 0, "totalBytes": 4 * GIB, "workers": 2}
    recorded_one = {"id": 1, "to": "step-2", "startedAt": "2026-11-25T02:40:00Z"}

    share = progress.prepared(RolloutRow.of(recorded_one | {"copies": copies}))

    assert share == progress.PartDone(0.0, "0% of 4.0 GiB")


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, "----"), (0.5, "##--"), (0.999, "###-"), (1.0, "####")]
)
def test_a_bar_is_full_only_when_all_is_done(share: float, expected: str) -> None:
    assert progress.bar(share, 4, is_ascii=True) == expected
