"""The model check within a minute or two: each fault once."""

import pytest

from tests.model import configs
from tests.model.__main__ import run


def test_no_fault_breaks_a_promise_or_keeps_a_fleet_from_its_goal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    searches = list(configs.bounded())
    results = run(iter(searches), 60_000, 400)

    states = sum(result.states for result in results)
    with capsys.disabled():
        print(f"model check: {states} states in {len(results)} searches")  # noqa: T201 - told
    assert [what for result in results for what in result.violations] == []
    assert len(results) == len(searches), "the machine is too slow for all of them"
