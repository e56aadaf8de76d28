"""What the demo reads from the lines of trainer and kubectl."""

import pytest

from tests.e2e.following import timeline
from tests.e2e.following.timeline import Disk, Look, Published


def name(number: int) -> str:
    return f"weight_v{number:06}"


def versions(*moments: float) -> dict[str, Published]:
    return {
        name(number): Published(name(number), at, number == 1, 10, 100)
        for number, at in enumerate(moments, 1)
    }


def test_a_trainer_s_log_that_is_read_again_changes_no_moment() -> None:
    lines = [
        (1.0, "Error from server: container is waiting to start\n"),
        (2.0, "weight_v000001 full 900 of 800 bytes\n"),
        (3.0, "weight_v000002 delta 90 of 800 bytes\n"),
        (9.0, "weight_v000001 full 900 of 800 bytes\n"),
    ]

    assert timeline.published(lines) == {
        "weight_v000001": Published(
            "weight_v000001", 2.0, is_full=True, nbytes=900, total_nbytes=800
        ),
        "weight_v000002": Published(
            "weight_v000002", 3.0, is_full=False, nbytes=90, total_nbytes=800
        ),
    }


def test_a_version_is_served_once_each_worker_has_proved_it() -> None:
    lines = [
        (1.0, "||\n"),
        (2.0, "base|base base|\n"),
        (3.0, "|weight_v000001 base|0\n"),
        (4.0, "weight_v000001|weight_v000001 base|0\n"),
        (5.0, "weight_v000001|weight_v000001 weight_v000001|2\n"),
        (6.0, "weight_v000001|weight_v000001 weight_v000001|3\n"),
        (7.0, "kubectl says something\n"),
    ]
    looks = timeline.looks(lines)

    assert looks[-1] == Look(6.0, name(1), (name(1), name(1)), 3)
    assert timeline.served(looks, versions(2.5)) == {name(1): 5.0}


def test_delays_are_from_published_to_served() -> None:
    assert timeline.delays(versions(10, 30, 50), {name(1): 14.5, name(3): 53}) == [3, 4.5]


@pytest.mark.parametrize(("share", "expected"), [(0.5, 2), (0.95, 4), (1, 4), (0.25, 1)])
def test_a_quantile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert timeline.quantile([1, 2, 3, 4], share) == expected
    assert timeline.quantile([], share) is None


@pytest.mark.parametrize(
    ("published", "since", "expected"),
    [
        ((0, 20, 40), {1: 5, 2: 25, 3: 45}, []),
        ((0, 20, 40), {1: 5, 3: 45}, [2]),
        ((0, 20, 40), {1: 38, 3: 45}, []),
        ((0, 20, 25), {1: 5, 3: 45}, []),
        ((0, 8, 16, 24), {1: 20, 4: 30}, []),
        ((0, 8, 16, 40), {1: 20, 4: 45}, [3]),
        ((0, 20), {1: 5}, [2]),
    ],
    ids=[
        "all",
        "it was free",
        "it was busy",
        "the next came at once",
        "two at a time",
        "the newest of those",
        "the last",
    ],
)
def test_only_a_fleet_that_was_busy_may_leave_out_a_version(
    published: tuple[float, ...], since: dict[int, float], expected: list[int]
) -> None:
    served = {name(number): float(at) for number, at in since.items()}

    assert timeline.neglected(versions(*published), served) == [name(one) for one in expected]


def test_a_directory_is_measured_in_kibibytes() -> None:
    assert timeline.disks([(1.0, "12 3\n"), (2.0, " 3\n"), (3.0, "command terminated\n")]) == [
        Disk(1.0, 12 * 1024, 3)
    ]
