"""Metrics, as Prometheus' own library reads them."""

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlfleet_view.samples import parsed


def page() -> str:
    """Return a page with what makes lines hard to read."""
    registry = CollectorRegistry()
    hard = Gauge("hard", 'Help with "quotes" and {braces} 1', ["a", "b"], registry=registry)
    hard.labels('a "quoted" }\\ one', "two\nlines").set(1e-9)
    hard.labels("", 'b="c",d').set(math.inf)
    Counter("vllm:generation_tokens", "Tokens.", ["engine"], registry=registry).labels("0").inc(7)
    Gauge("bare", "No labels.", registry=registry).set(-3)
    return generate_latest(registry).decode()


def test_each_value_is_read_as_by_their_library() -> None:
    text = page()
    theirs = [
        (one.name, one.labels, one.value)
        for family in text_string_to_metric_families(text)
        for one in family.samples
    ]

    assert [(one.name, dict(one.labels), one.value) for one in parsed(text)] == theirs
    assert len(theirs) >= 4


@pytest.mark.parametrize("line", ["", "# TYPE x gauge", "not a sample", 'x{a="b"} word', "<html>"])
def test_what_is_no_sample_is_passed_over(line: str) -> None:
    assert list(parsed(line)) == []


def test_a_sample_may_end_with_its_time() -> None:
    (found,) = parsed('x{a="b"} 4 1795575090000')

    assert found.value == 4
