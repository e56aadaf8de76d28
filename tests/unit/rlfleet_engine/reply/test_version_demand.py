"""Which version will do: a table."""

import pytest

from rlfleet_contract import paths
from rlfleet_engine.reply.version_demand import DemandError, DemandVerdict, VersionDemand, demand_of

EXACT, MINIMUM = paths.EXACT_VERSION_HEADER.encode(), paths.MIN_VERSION_HEADER.encode()
END = paths.END_VERSION_HEADER.encode()
MET, UNMET, NO_ORDER = DemandVerdict.MET, DemandVerdict.UNMET, DemandVerdict.NO_ORDER


@pytest.mark.parametrize(
    ("version", "exact", "minimum", "expected"),
    [
        ("step-3", "step-3", None, MET),
        ("step-3", "step-4", None, UNMET),
        ("step-03", "step-3", None, UNMET),
        ("", "step-3", None, UNMET),
        ("step-3", None, "step-3", MET),
        ("step-10", None, "step-9", MET),
        ("step-9", None, "step-10", UNMET),
        ("step-010", None, "step-9", MET),
        ("", None, "step-9", UNMET),
        ("7", None, "6", MET),
        ("hotfix", None, "hotfix", MET),
        ("hotfix", None, "step-1", NO_ORDER),
        ("step-1", None, "hotfix", NO_ORDER),
        ("run-2-step-9", None, "run-1-step-8", NO_ORDER),
        ("run-2-step-9", None, "run-2-step-8", MET),
        ("base", None, "step-0", UNMET),
        ("base", None, "hotfix", UNMET),
        ("base", None, "base", MET),
        ("step-0", None, "base", MET),
        ("hotfix", None, "base", MET),
        ("step-3", "step-3", "step-2", MET),
        ("step-3", "step-3", "step-4", UNMET),
        ("step-3", "step-4", "step-2", UNMET),
    ],
)
def test_a_version_will_do_or_not(
    version: str, exact: str | None, minimum: str | None, expected: DemandVerdict
) -> None:
    assert VersionDemand(exact, minimum).verdict(version) is expected


def test_a_request_without_a_demand_takes_any_version() -> None:
    assert demand_of([(b"host", b"x"), (b"x-rlfleet-version", b"step-1")]) is None


def test_both_headers_are_read() -> None:
    assert demand_of([(EXACT, b" step-2 "), (b"host", b"x"), (MINIMUM, b"1")]) == VersionDemand(
        "step-2", "1"
    )


def test_a_stream_may_have_to_report_its_last_version() -> None:
    assert demand_of([(END, b" event ")]) == VersionDemand(wants_end=True)
    assert demand_of([(END, b"event"), (MINIMUM, b"1")]) == VersionDemand(None, "1", wants_end=True)
    assert VersionDemand(wants_end=True).verdict("") is MET


@pytest.mark.parametrize("value", [b"", b"step-1", b"events", b"event,event"])
def test_another_word_about_the_end_is_refused_by_its_header(value: bytes) -> None:
    with pytest.raises(DemandError, match=f"{paths.END_VERSION_HEADER} is .*, expected event"):
        demand_of([(END, value)])


@pytest.mark.parametrize("value", [b"", b" ", b"a b", b"../x", b"step-1,step-2", b"\xff"])
def test_a_header_that_names_no_version_is_refused_by_its_name(value: bytes) -> None:
    with pytest.raises(DemandError, match=paths.MIN_VERSION_HEADER):
        demand_of([(MINIMUM, value)])


def test_a_header_that_is_there_twice_is_refused() -> None:
    with pytest.raises(DemandError, match="step-1, step-2"):
        demand_of([(EXACT, b"step-1"), (EXACT, b"step-2")])
