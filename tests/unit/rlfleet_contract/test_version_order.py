"""The order of versions by their names, as an engine and as the operator ask for it: a table."""

import pytest

from rlfleet_contract.version_order import is_before, is_lower, number_of
from rlfleet_engine.reply.version_demand import DemandVerdict, VersionDemand
from rlfleet_operator.core.rollout.version_order import skew, too_old
from rlfleet_operator.crd.rollout_spec import StalenessSpec
from tests.unit.rlfleet_operator.core.rollout.test_version_order import serving

LONG = "step-20261123011812000001"
LONGER = "step-20261123011812000002"
VERDICTS = {True: DemandVerdict.UNMET, False: DemandVerdict.MET, None: DemandVerdict.NO_ORDER}
TABLE = [
    ("step-9", "step-10", True, True),
    ("step-10", "step-9", False, False),
    ("step-9", "step-9", False, False),
    ("step-009", "step-10", True, True),
    ("step-010", "step-10", False, False),
    ("7", "8", True, True),
    (LONG, LONGER, True, True),
    (LONGER, LONG, False, False),
    ("step-9", "step-1000000000000000", True, True),
    ("step-1000000000000000", "step-9", False, False),
    # Other text before the number: only a fleet's own bound looks past it.
    ("a-9", "b-10", None, True),
    ("b-10", "a-9", None, False),
    ("run-1-step-9", "run-2-step-10", None, True),
    ("step9", "step-10", None, True),
    # No number, and the base model.
    ("final", "step-10", None, False),
    ("base", "step-10", True, False),
    ("base", "base-1", True, False),
]
"""A version, another, whether it is before by names alike, whether its number is lower."""


@pytest.mark.parametrize(("version", "other", "before", "lower"), TABLE)
def test_names_have_one_order_and_a_bound_looks_at_numbers_alone(
    version: str, other: str, *, before: bool | None, lower: bool
) -> None:
    assert (is_before(version, other), is_lower(version, other)) == (before, lower)


@pytest.mark.parametrize(("version", "other", "before", "lower"), TABLE)
def test_the_engine_and_the_operator_go_by_it(
    version: str, other: str, *, before: bool | None, lower: bool
) -> None:
    bounds = StalenessSpec(min_version=other, on_violation="Unready")

    assert VersionDemand(minimum=other).verdict(version) is VERDICTS[before]
    assert (too_old(version, bounds) is not None) == lower


@pytest.mark.parametrize("version", ["final", "hotfix", "base", ""])
def test_before_the_base_model_comes_nothing(version: str) -> None:
    assert is_before(version, "base") is False


def test_two_orders_never_contradict_one_another() -> None:
    known = [row for row in TABLE if row[2] is not None and row[0] != "base"]

    assert known
    assert all(before == lower for _, _, before, lower in known)


def test_a_number_is_all_the_digits_at_the_end() -> None:
    assert number_of("step-1000000000000007") == 10**15 + 7
    assert number_of("step-1.5") == 5
    assert number_of("step-1a") is None


def test_a_skew_has_room_in_the_status() -> None:
    assert skew(serving("step-1", f"step-1{'0' * 100}")) == 2**53 - 1
    assert skew(serving(LONG, LONGER)) == 1
