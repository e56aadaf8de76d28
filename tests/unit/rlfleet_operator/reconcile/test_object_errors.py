"""Which errors of writes appear in status, and when."""

import pytest

from rlfleet_operator.errors import (
    Conflict,
    Missing,
    NotLeading,
    OperatorError,
    Refused,
    Retryable,
    Unreachable,
)
from rlfleet_operator.reconcile import object_errors

TRANSIENT: list[OperatorError] = [
    Retryable("500"),
    Unreachable("timeout"),
    Conflict("409"),
    NotLeading("over"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda error: type(error).__name__)
def test_an_error_that_may_pass_is_reported_only_when_it_lasts(error: OperatorError) -> None:
    """kstatus takes Stalled for a failure, and Flux gives up."""
    found = None
    for now in range(100, 160, 5):
        found = object_errors.after([error], found, now)
        assert found is not None
        assert found.may_pass
        assert found.for_status(now) is None
    found = object_errors.after([error], found, 160)

    assert found is not None
    assert found.for_status(160) == str(error)


def test_a_success_ends_it_and_what_comes_then_is_new() -> None:
    first = object_errors.after([Unreachable("timeout")], None, 100)
    assert object_errors.after([], first, 150) is None

    second = object_errors.after([Unreachable("timeout")], None, 155)

    assert second is not None
    assert second.for_status(165) is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refused("quota"), "quota"),
        (Missing("no namespace"), "no namespace"),
        (TypeError("x"), "internal error: TypeError: x; see the operator's log"),
    ],
    ids=["refused", "missing", "a defect"],
)
def test_an_error_that_a_user_must_fix_is_reported_at_once(error: Exception, told: str) -> None:
    found = object_errors.after([Unreachable("timeout"), error], None, 100)

    assert found is not None
    assert found.for_status(100) == told


def test_a_disturbance_takes_back_nothing_that_was_refused() -> None:
    refused = object_errors.after([Refused("quota")], None, 100)

    assert object_errors.after([Unreachable("timeout")], refused, 105) == refused
    assert object_errors.after([], refused, 105) is None
