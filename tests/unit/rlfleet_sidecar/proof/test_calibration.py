"""How an engine is probed follows from what was measured of it."""

import pytest

from rlfleet_sidecar.proof.calibration import (
    COMPANIES,
    LENGTHS,
    Calibration,
    affordable,
    companies,
    gauge,
    unmeasured,
)
from rlfleet_sidecar.proof.probe import ProbeAnswer


def said(*logprobs: float) -> ProbeAnswer:
    return ProbeAnswer((1, 2), logprobs)


@pytest.mark.parametrize(
    ("shortest_s", "length"),
    [(0.0, 64), (0.02, 64), (0.04, 32), (0.1, 16), (0.2, 8), (5.0, 8)],
)
def test_the_prompt_is_as_long_as_clients_can_wait_for(shortest_s: float, length: int) -> None:
    assert affordable(shortest_s, 0.25) == length
    assert length in LENGTHS


@pytest.mark.parametrize(
    ("answer_s", "limit_s", "measured"),
    [
        (0.01, 10, COMPANIES),
        (0.1, 10, COMPANIES),
        (0.2, 10, COMPANIES[:2]),
        (5.0, 10, COMPANIES[:1]),
        (0.0, 0, COMPANIES),
        (0.001, 0, COMPANIES[:1]),
    ],
)
def test_an_engine_is_measured_in_batches_as_large_as_its_time_allows(
    answer_s: float, limit_s: float, measured: tuple[int, ...]
) -> None:
    assert companies(answer_s, limit_s) == measured


def test_an_engine_that_always_says_the_same_is_allowed_the_floor() -> None:
    alone, beside = [said(-1.0, -2.0)] * 2, [said(-1.0, -2.0)]
    assert gauge("b1", alone, beside) == Calibration("b1", length=3, noise=0.0, tolerance=0.02)


def test_the_tolerance_is_well_above_the_largest_difference_in_company() -> None:
    measured = gauge("b1", [said(-1.0, -2.0)] * 2, [said(-1.0, -2.02), said(-1.01, -2.0)])

    assert measured.noise == 0
    assert measured.tolerance == pytest.approx(0.08)


def test_noise_is_what_an_idle_engine_shows() -> None:
    measured = gauge("b1", [said(-1.0), said(-1.03)], [said(-1.0)])

    assert measured.noise == pytest.approx(0.12)
    assert measured.tolerance == pytest.approx(0.12)


def test_an_engine_that_was_never_measured_is_allowed_more_and_asked_little() -> None:
    assert unmeasured("b1").length == min(LENGTHS)
    assert unmeasured("b1").tolerance > gauge("b1", [said(-1.0)], []).tolerance
