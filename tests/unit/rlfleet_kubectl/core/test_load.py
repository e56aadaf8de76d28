"""The rows of `top`: rates between two readings, and how far a worker is behind."""

import pytest
from rich.console import Console

from rlfleet_kubectl.core import load
from rlfleet_kubectl.core.load import EngineReading
from rlfleet_view.samples import parsed
from tests.unit.rlfleet_view.recordings import fleet, with_status

NAME = "qwen-0"
NOW = 1000.0


def reading(at: float, generated: int, waiting: int = 2) -> EngineReading:
    """Return the metrics of an engine of two parts."""
    text = f"""\
vllm:generation_tokens_total{{engine="0"}} {generated}
vllm:generation_tokens_total{{engine="1"}} {generated}
vllm:prompt_tokens_total{{engine="0"}} 10
vllm:num_requests_running{{engine="0"}} 3
vllm:num_requests_waiting{{engine="0"}} {waiting}
vllm:kv_cache_usage_perc{{engine="0"}} 0.25
vllm:kv_cache_usage_perc{{engine="1"}} 0.75
"""
    return EngineReading(at, tuple(parsed(text)))


def test_a_rate_is_what_was_added_between_two_readings_by_all_parts() -> None:
    found = load.of_fleet(fleet("synced"), {NAME: (reading(10, 100), reading(14, 140))}, None, NOW)

    whole, (first, other) = found.row, found.workers
    assert first.name == NAME
    assert (first.generated, first.prompts) == (20.0, 0.0)
    assert (first.running, first.waiting, first.cache) == (3.0, 2.0, 0.75)
    assert (other.generated, other.running) == (None, None)
    assert (whole.generated, whole.running, whole.cache) == (20.0, 3.0, 0.75)


@pytest.mark.parametrize(
    "readings",
    [
        (reading(10, 100), reading(14, 4)),
        (reading(10, 100), reading(10, 100)),
    ],
    ids=["an engine that restarted", "one reading alone"],
)
def test_no_rate_is_made_up(readings: tuple[EngineReading, EngineReading]) -> None:
    (first, _) = load.of_fleet(fleet("synced"), {NAME: readings}, None, NOW).workers

    assert first.generated is None
    assert first.running == 3.0


@pytest.mark.parametrize(
    ("version", "target", "expected"),
    [
        ("step-7", "step-9", 2),
        ("step-9", "step-9", 0),
        ("base", "base", 0),
        ("base", "step-9", None),
        ("", "step-9", None),
        ("step-10", "step-9", -1),
    ],
)
def test_staleness_is_counted_in_steps_to_the_target(
    version: str, target: str, expected: int | None
) -> None:
    assert load.behind(version, target) == expected


def test_a_fleet_is_as_stale_as_its_oldest_worker() -> None:
    rows = [
        {"name": "qwen-0", "phase": "Serving", "version": "step-7"},
        {"name": "qwen-1", "phase": "Serving", "version": "step-9"},
    ]
    seen = with_status(fleet("synced"), workers=rows, target="step-9", serving="")

    whole = load.of_fleet(seen, {}, None, NOW).row
    assert (whole.behind, whole.version) == (2, "several")


def test_what_is_not_known_is_drawn_as_a_dash() -> None:
    console = Console(width=200)
    with console.capture() as held:
        console.print(load.drawn([load.of_fleet(fleet("synced"), {}, None, NOW)]))

    lines = held.get().splitlines()
    assert lines[0].split()[:6] == ["NAME", "PHASE", "VERSION", "BEHIND", "TOKENS/S", "PROMPT/S"]
    assert " - " in lines[2]


def test_how_old_the_weights_are_comes_from_the_leaders_metrics_of_this_fleet() -> None:
    seen = fleet("synced")
    mine = f'namespace="{seen.namespace}",fleet="{seen.name}"'
    text = f"""\
rlfleet_version_timestamp_seconds{{{mine},use="target"}} 880
rlfleet_version_timestamp_seconds{{{mine},use="serving"}} 700
rlfleet_version_skew{{{mine}}} 1
rlfleet_window_seconds_sum{{{mine}}} 0.3
rlfleet_window_seconds_count{{{mine}}} 4
rlfleet_version_skew{{namespace="other",fleet="{seen.name}"}} 9
"""
    found = load.of_fleet(seen, {}, list(parsed(text)), NOW)

    assert found.staleness == load.Staleness(1, 120, 300, 4, 75)
    assert load.note(found) == (
        f"{seen.name}: target {seen.target} for 2m, serving {seen.serving} for 5m, skew 1,"
        " window 75 ms on average of 4"
    )


def test_without_the_operators_metrics_nothing_is_said() -> None:
    seen = fleet("synced")

    assert load.note(load.of_fleet(seen, {}, None, NOW)) == ""
    assert load.note(load.of_fleet(seen, {}, [], NOW)) == ""
