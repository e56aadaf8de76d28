"""Tokens per second and waiting requests, from looks at engines' counters."""

from collections.abc import Mapping

import pytest

from rlfleet_view.load import EngineLoad, LoadHistory, parsed

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen"} 4.0
vllm:num_requests_waiting{engine="0",model_name="qwen"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="qwen",reason="capacity"} 9.0
vllm:generation_tokens_total{engine="0",model_name="qwen"} 1.5e+03
vllm:generation_tokens_created{engine="0",model_name="qwen"} 1.7e+09
"""


def engine(tokens: float, running: float = 1, waiting: float = 0) -> EngineLoad:
    return EngineLoad(tokens, running, waiting)


def rates(*looks: Mapping[str, EngineLoad | str]) -> list[float | None]:
    """Return the rate of each look, 2 s apart."""
    history = LoadHistory()
    for number, found in enumerate(looks):
        history.add(100.0 + 2 * number, found, len(found))
    return [point.tokens_per_s for point in history.points]


def test_vllm_s_metrics_are_read() -> None:
    assert parsed(METRICS) == EngineLoad(1500.0, 4.0, 3.0)


def test_the_engines_of_data_parallel_ranks_are_added_up() -> None:
    assert parsed(METRICS + METRICS.replace('engine="0"', 'engine="1"')) == EngineLoad(3000, 8, 6)


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "vllm:num_requests_running 1\n"])
def test_what_lacks_a_series_is_no_load(text: str) -> None:
    assert parsed(text) is None


def test_a_rate_needs_two_looks() -> None:
    assert rates({"a": engine(100)}, {"a": engine(150)}) == [None, 25.0]


def test_an_engine_that_began_again_is_left_out_of_the_rate() -> None:
    first: dict[str, EngineLoad | str] = {"a": engine(100), "b": engine(900)}

    assert rates(first, {"a": engine(150), "b": engine(10)}) == [None, 25.0]


def test_an_engine_that_was_silent_before_is_left_out_of_the_rate() -> None:
    first: dict[str, EngineLoad | str] = {"a": engine(100), "b": "refused"}

    assert rates(first, {"a": engine(150), "b": engine(1000)}) == [None, 25.0]


def test_a_look_without_any_engine_is_a_gap_with_its_reason() -> None:
    history = LoadHistory()
    history.add(100.0, {"a": engine(5)}, 1)
    history.add(102.0, {"a": "pods/proxy is forbidden"}, 1)

    said = history.as_json()
    assert [point[0] for point in said["points"]] == [100.0]
    assert said["note"] == "1 of 1 engines without metrics: a: pods/proxy is forbidden"
    assert rates({"a": engine(5)}, {"a": "silent"}, {"a": engine(9)}) == [None, None]


def test_workers_that_are_not_asked_are_counted() -> None:
    history = LoadHistory()
    history.add(100.0, {"a": engine(5)}, 40)

    assert history.as_json()["note"] == "only 1 of 40 workers are asked"


@pytest.mark.parametrize(
    ("later_s", "is_due"), [(0.0, False), (1.9, False), (2.0, True), (-5.0, True)]
)
def test_looks_are_two_seconds_apart_also_after_a_clock_step(
    later_s: float, *, is_due: bool
) -> None:
    history = LoadHistory()
    assert history.is_due(100.0)
    history.add(100.0, {"a": engine(5)}, 1)

    assert history.is_due(100.0 + later_s) is is_due
