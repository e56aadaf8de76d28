"""latest.json keeps what was measured of one size when another is measured."""

from typing import Any

from bench.findings import Part, merged


def measured(latest: dict[str, Any], part: str, **figures: Any) -> dict[str, Any]:
    return merged(latest, part, Part(figures, {}), {}, ("scale-16", "scale-1000", "baseline"))


def test_figures_of_several_sizes_stand_beside_each_other_in_their_order() -> None:
    latest = measured({}, "scale-1000", control_time_s={"1000": 30.0})

    latest = measured(latest, "scale-16", control_time_s={"16": 1.0})

    assert list(latest["figures"]["control_time_s"].items()) == [("16", 1.0), ("1000", 30.0)]


def test_a_size_that_is_measured_again_replaces_its_older_figure() -> None:
    latest = measured({}, "scale-16", control_time_s={"16": 2.0})

    assert measured(latest, "scale-16", control_time_s={"16": 1.0})["figures"] == {
        "control_time_s": {"16": 1.0}
    }


def test_a_part_that_nothing_measures_any_more_goes() -> None:
    latest = {"parts": {"scale": {"figures": {"control_time_s": {"16": 9.0}}}}}

    assert measured(latest, "baseline", restart_baseline_s=1.0)["figures"] == {
        "restart_baseline_s": 1.0
    }
