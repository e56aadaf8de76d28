"""When the loop looks at a fleet again although nothing has happened."""

from dataclasses import replace

import pytest

from rlfleet_operator.core.model.world import Worker
from rlfleet_operator.core.timers import due_in_s
from tests.workers import MOMENT, pod, worker, world


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (worker(), None),
        (Worker("qwen-0", 0), None),
        (replace(worker(), retry_at=MOMENT + 5), 5.0),
        (replace(worker(), retry_at=MOMENT - 5), None),
        (replace(worker(), pod=pod(phase="Failed"), replace_at=MOMENT + 8), 8.0),
        (replace(worker(), pod=pod(terminating=True, ends_by=MOMENT + 90)), 150.0),
        (replace(worker(), pod=pod(terminating=True, ends_by=MOMENT - 90)), None),
        (Worker("qwen-0", 0, pod(phase="Pending", ready=False, created_at=MOMENT - 9)), 21.0),
        (replace(worker(), pod=pod(ready=False, weights_ready_at=MOMENT - 4)), 6.0),
        (replace(worker(), pod=pod(weights_ready_at=MOMENT - 4)), None),
    ],
    ids=[
        "nothing comes",
        "no pod",
        "a command that is tried again",
        "a command that may be tried again",
        "a pod that failed",
        "a pod that ends",
        "a pod that is overdue",
        "a pod that a scheduler may not have seen yet",
        "a pod whose gate the kubelet has not seen yet",
        "a pod whose gate the kubelet has seen",
    ],
)
def test_what_time_brings_is_waited_for(subject: Worker, expected: float | None) -> None:
    assert due_in_s(world(subject)) == expected


def test_the_first_of_all_workers_moments_counts() -> None:
    seen = world(*(replace(worker(n), retry_at=MOMENT + 9 - n) for n in range(3)))

    assert due_in_s(seen) == 7.0
