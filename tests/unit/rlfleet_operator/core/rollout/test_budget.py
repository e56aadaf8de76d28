"""How many workers may be out at once."""

import pytest

from rlfleet_operator.core.rollout import budget


@pytest.mark.parametrize(
    ("limit", "replicas", "expected"),
    [
        (1, 4, 1),
        (3, 4, 3),
        (9, 4, 9),
        ("25%", 4, 1),
        ("25%", 7, 1),
        ("25%", 8, 2),
        ("50%", 5, 2),
        ("100%", 5, 5),
        ("25%", 3, 1),
        ("1%", 4, 1),
        ("25%", 0, 1),
    ],
)
def test_a_percentage_is_rounded_down_to_one_at_least(
    limit: int | str, replicas: int, expected: int
) -> None:
    assert budget.resolve(limit, replicas) == expected


@pytest.mark.parametrize(("limit", "out", "expected"), [(2, 0, 2), (2, 2, 0), (2, 5, 0)])
def test_what_is_left_is_never_less_than_nothing(limit: int, out: int, expected: int) -> None:
    assert budget.left(limit, out) == expected
