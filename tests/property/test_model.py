"""The model check in small: each way in which a rollout may end, and that the search can see.

``tests/integration/test_model.py`` searches further, ``make modelcheck`` furthest.
"""

from dataclasses import replace

import pytest

from tests.model import configs
from tests.model.explore import Config, Fleet, State
from tests.model.pair import Fault
from tests.model.search import Result, Search


def searched(config: Config) -> Result:
    return Search(config, 100_000, 100).run()


@pytest.mark.parametrize("config", list(configs.quick()), ids=lambda config: config.name)
def test_every_order_of_events_keeps_the_promises_and_ends_well(config: Config) -> None:
    result = searched(config)

    assert result.violations == []
    assert result.is_whole
    assert result.states > 100


def test_the_planner_reads_nothing_of_status_that_the_model_leaves_out() -> None:
    config = configs.config(configs.ROLLING, "x", Fault.PATCH, policy="Rollback")
    search = Search(config, 2_000, 100)
    search.fleet.mind.is_checked = True

    assert search.run().violations == []


def test_a_broken_promise_is_told_event_by_event() -> None:
    config = replace(configs.config(configs.ROLLING, "b", out=2), allowed=1)

    told = searched(config).violations[0]

    assert "2 workers in service are being changed, maxUnavailable is 1" in told
    assert told.count("Pause goes on") == 2
    assert "Update b (rollout-2, epoch 1) arrives" in told


class Insatiable(Fleet):
    """A fleet with which nobody is ever content."""

    def is_goal(self, state: State) -> bool:
        """Say no."""
        return not state


def test_an_end_that_is_not_the_goal_is_found() -> None:
    search = Search(configs.config(configs.ROLLING, "b"), 100_000, 100)
    search.fleet = Insatiable(search.fleet.config)

    assert "the goal is never reached" in search.run().violations[0]
