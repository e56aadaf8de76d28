"""latest.json keeps what was measured of one size when another is measured."""

from typing import Any

import pytest

from bench.findings import Part, merged, table


def measured(latest: dict[str, Any], part: str, **figures: Any) -> dict[str, Any]:
    return merged(latest, part, Part(figures, {}), {}, ("scale-16", "scale-1000", "baseline"))


def test_figures_of_several_sizes_stand_in_a_row_in_their_order() -> None:
    latest = measured({}, "scale-1000", control_time_s={"1000": 30.0})

    latest = measured(latest, "scale-16", control_time_s={"16": 1.0})

    assert list(latest["figures"]["control_time_s"].items()) == [("16", 1.0), ("1000", 30.0)]


def test_a_size_that_is_measured_again_replaces_its_older_figure() -> None:
    latest = measured({}, "scale-16", control_time_s={"16": 2.0})

    assert measured(latest, "scale-16", control_time_s={"16": 1.0})["figures"] == {
        "control_time_s": {"16": 1.0}
    }


def test_a_figure_without_a_title_goes_from_other_parts_and_cannot_be_measured() -> None:
    latest = {"parts": {"baseline": {"figures": {"former": 1.0}}}}

    assert measured(latest, "scale-16", operator_cpu_s={"16": 1.0})["figures"] == {
        "operator_cpu_s": {"16": 1.0}
    }
    with pytest.raises(ValueError, match="former"):
        measured({}, "scale-16", former=1.0)


def test_a_run_names_what_the_processor_can_and_what_emptied_the_page_cache() -> None:
    machine = {
        "cores": 2,
        "processor": "Xeon",
        "flags": ["sha_ni"],
        "damon": ["pageout on"],
        "memory_gib": 24,
        "kernel": "6",
        "python": "3",
    }
    about = {"date": "now", "commit": "c", "seconds": 1.0, "load_before": 0.1, "refaults": 12}
    part = Part({}, {})

    told = table(merged({}, "scale-16", part, {**about, "machine": machine}, ("scale-16",)))

    assert "(Xeon; sha_ni)" in told
    assert "DAMON pageout on, 12 pages of files read again" in told


def test_a_part_that_nothing_measures_is_removed() -> None:
    latest = {"parts": {"scale": {"figures": {"control_time_s": {"16": 9.0}}}}}

    assert measured(latest, "baseline", restart_baseline_s=1.0)["figures"] == {
        "restart_baseline_s": 1.0
    }
