"""How long an ended pod waits for its replacement."""

from typing import Any

import pytest

from rlfleet_operator.clock import WallClock
from rlfleet_operator.core.model.worker_pod import Pod
from rlfleet_operator.reconcile.pod_backoff import PodBackoff
from tests import workers

NAMES = ("qwen-0", "qwen-1")


def made(uid: str, **fields: Any) -> Pod:
    return workers.pod(uid=uid, **fields)


def failed(uid: str, **fields: Any) -> Pod:
    return made(uid, phase="Failed", **fields)


class Story:
    """One worker's pods, one after the other."""

    def __init__(self) -> None:
        self._kept = PodBackoff()
        self.moment = 1000.0
        self.epoch = 5e8
        self._wall = WallClock(lambda: self.moment + self.epoch, lambda: self.moment)

    def sees(self, pod: Pod | None, *, names: tuple[str, ...] = NAMES) -> float:
        """Return how long it is waited until this pod is replaced; 0 if it is not waited."""
        self._kept.see({} if pod is None else {pod.name: pod}, names, self.moment)
        found = self._kept.replace_at("qwen-0", pod, self._wall)
        return max(0.0, found - self.moment - self.epoch)

    def later(self, seconds: float) -> None:
        self.moment += seconds


@pytest.fixture
def story() -> Story:
    return Story()


def test_each_pod_that_fails_waits_twice_as_long_up_to_five_minutes(story: Story) -> None:
    waits = []
    for number in range(1100):
        waits.append(story.sees(failed(f"p-{number}")))
        story.later(waits[-1])
        story.sees(None)

    assert waits[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert set(waits[10:]) == {300}


def test_a_moment_in_status_does_not_change(story: Story) -> None:
    story.sees(failed("p-1"))
    story.later(1)
    story.sees(failed("p-2"))
    story.later(0.5)

    assert story.sees(failed("p-2")) == 1.5


def test_the_waits_start_again_once_a_pod_has_run_well(story: Story) -> None:
    story.sees(failed("p-1"))
    story.sees(failed("p-2"))

    story.sees(made("p-3"))
    story.later(299)
    story.sees(made("p-3"))
    assert story.sees(failed("p-3")) == 4

    story.sees(made("p-4"))
    story.later(300)
    assert story.sees(failed("p-4")) == 1


def test_a_pod_of_another_template_is_no_repetition(story: Story) -> None:
    story.sees(failed("p-1"))
    story.sees(failed("p-2"))

    assert story.sees(failed("p-3", template_hash="other")) == 1


def test_what_runs_begins_or_is_deleted_waits_for_nothing(story: Story) -> None:
    story.sees(failed("p-1"))

    assert story.sees(made("p-2", phase="Pending")) == 0
    assert story.sees(made("p-2")) == 0
    assert story.sees(failed("p-2", terminating=True)) == 0
    assert story.sees(failed("p-3")) == 2


def test_a_worker_that_is_not_wanted_is_forgotten(story: Story) -> None:
    story.sees(failed("p-1"))
    story.sees(None, names=("qwen-1",))

    assert story.sees(failed("p-2")) == 1


@pytest.mark.parametrize("step_s", [-3600.0, -1.0, 1.0, 3600.0])
def test_a_wall_clock_that_is_set_changes_no_wait(story: Story, step_s: float) -> None:
    for number in range(6):
        story.sees(failed(f"p-{number}"))
    story.later(4)

    story.epoch += step_s

    assert story.sees(failed("p-5")) == 28
