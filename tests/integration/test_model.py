"""The model check within a minute or two: each fault once."""

import pytest

from tests.model import configs
from tests.model.explore import Config
from tests.model.search import Search

MAX_STATES = 30_000
"""Of one search. Most end before; ``make modelcheck`` searches 200,000."""

SEARCHES = {config.name: config for config in configs.bounded()}


@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
def test_no_fault_breaks_a_promise_or_keeps_a_fleet_from_its_goal(config: Config) -> None:
    result = Search(config, MAX_STATES, max_seconds=240).run()

    assert result.violations == []
    assert result.is_whole or result.states >= MAX_STATES, "the machine is too slow for it"
