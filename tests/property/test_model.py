"""The model check in small: each way in which a rollout may end, and that the search can see.

``tests/integration/test_model.py`` searches further, ``make modelcheck`` furthest.
"""

from dataclasses import replace

import pytest

from rlfleet_contract.worker.report import Stage
from tests.model import configs
from tests.model.explore import Config, Fleet, State
from tests.model.mind import Decision
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


def test_a_broken_promise_is_shown_event_by_event() -> None:
    config = replace(configs.config(configs.ROLLING, "b", out=2), allowed=1)

    shown = searched(config).violations[0]

    assert "2 workers in service are being changed, maxUnavailable is 1" in shown
    assert shown.count("Pause continues") == 2
    assert "Update b (rollout-2, epoch 1) arrives" in shown


class Mute(Fleet):
    """A fleet whose operator asks nothing of a worker that has proved nothing and is paused."""

    def decision(self, state: State) -> Decision:
        """Leave it to its time to live."""
        found = super().decision(state)
        known = [known.report for _, known in self.pairs(state)]
        left = [seen and seen.state.stage is Stage.PAUSED and not seen.running for seen in known]
        return found if not any(left) else found._replace(actions=())


def test_an_end_that_only_the_time_to_live_leads_to_is_no_end() -> None:
    """A driver that lives starts it again for ever: nothing may wait for it."""
    faults = (Fault.SIDECAR, Fault.EXPIRY)
    search = Search(configs.config(configs.ROLLING, "b", *faults, replicas=1), 100_000, 100)
    search.fleet = Mute(search.fleet.config)

    assert "the goal is never reached" in search.run().violations[0]


class Insatiable(Fleet):
    """A fleet that never passes."""

    def is_goal(self, state: State) -> bool:
        """Say no."""
        return not state


def test_an_end_that_is_not_the_goal_is_found() -> None:
    search = Search(configs.config(configs.ROLLING, "b"), 100_000, 100)
    search.fleet = Insatiable(search.fleet.config)

    assert "the goal is never reached" in search.run().violations[0]
