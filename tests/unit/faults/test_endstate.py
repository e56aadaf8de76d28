"""In what two ends differ."""

import pytest

from faults import endstate

WANTED = {"fleets.qwen.status.proved": '"2/2"', "pods.qwen-0.phase": '"Running"'}


def test_equal_ends_do_not_differ() -> None:
    assert endstate.differences(WANTED, dict(WANTED), set(), "^$") == []


@pytest.mark.parametrize(
    ("found", "reported"),
    [
        (WANTED | {"fleets.qwen.status.proved": '"1/2"'}, '"1/2", wanted "2/2"'),
        (WANTED | {"pods.qwen-7.phase": '"Running"'}, '"Running", wanted absent'),
        ({"pods.qwen-0.phase": '"Running"'}, 'absent, wanted "2/2"'),
    ],
    ids=["another value", "something left over", "something missing"],
)
def test_what_differs_is_reported(found: dict[str, str], reported: str) -> None:
    (line,) = endstate.differences(WANTED, found, set(), "^$")

    assert reported in line


def test_what_differs_without_faults_is_not_compared() -> None:
    other = WANTED | {"fleets.qwen.status.proved": '"1/2"'}

    assert endstate.differences(WANTED, other, endstate.unstable(WANTED, other), "^$") == []


@pytest.mark.parametrize(
    "path",
    [
        "pods.qwen-0.metadata.uid",
        "fleets.qwen.status.conditions.0.lastTransitionTime",
        "fleets.qwen.status.rollout.startedAt",
        "fleets.qwen.status.workers.0.windowMs",
        "services.qwen.spec.clusterIPs.0",
    ],
)
def test_times_and_drawn_names_are_never_compared(path: str) -> None:
    assert endstate.BY_HAND_PATTERN.search(path)


@pytest.mark.parametrize(
    "path",
    [
        "fleets.qwen.status.rollout.id",
        "fleets.qwen.status.conditions.0.reason",
        "workers.qwen-0.journal.state.proved",
        "workers.qwen-0.engine.paused",
        "workers.qwen-0.engine.loads are on record",
        "pods.qwen-0.metadata.labels.rlfleet.dev/weight-version",
    ],
)
def test_what_a_user_relies_on_is_compared(path: str) -> None:
    assert not endstate.BY_HAND_PATTERN.search(path)


def test_what_may_end_in_one_way_or_another_is_not_compared_though_it_is_new() -> None:
    found = {**WANTED, "workers.qwen-0.journal.failure.code": "FlushFailed"}

    assert endstate.differences(WANTED, found, set(), r"journal\.failure") == []
    assert len(endstate.differences(WANTED, found, set(), "^$")) == 1
