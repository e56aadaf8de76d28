"""Workers that were left paused half way: nobody stays so for ever while an operator lives.

Its heartbeats count the time to live anew, so only a command leads such a worker on.
"""

from typing import Any

import pytest

from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_operator.core.model.actions import Action, Prepare, Resume, Update
from rlfleet_operator.core.model.world import World
from rlfleet_operator.core.plan import plan
from tests.workers import problem, recorded, worker, world

LATE: dict[str, Any] = {"prepared": "step-1", "paused_s": 1.0}
"""It was on its way to step-1 and has proved nothing when step-2 is asked for."""
REFUSED: dict[str, Any] = {"refusal": problem(Code.CHECKPOINT_INVALID)}


def asking(*seen: Any, **rollout: Any) -> World:
    status = recorded("step-2", "Preparing")
    return world(*seen, weightVersion="step-2", rollout=rollout, status=status)


def commands(seen: World) -> list[Action]:
    return [a for a in plan(seen).actions if isinstance(a, Prepare | Update | Resume)]


def whose(found: list[Action], name: str) -> list[Action]:
    return [a for a in found if isinstance(a, Prepare | Update | Resume) and a.worker == name]


@pytest.mark.parametrize("strategy", ["Rolling", "Canary", "Barrier"])
def test_who_has_proved_nothing_prepares_though_it_is_paused(strategy: str) -> None:
    seen = asking(worker(0, prepared="step-2"), worker(1, Stage.PAUSED, **LATE), strategy=strategy)

    assert whose(commands(seen), "qwen-1") == [
        Prepare("qwen-1", "step-2", "rollout-1", waits=strategy == "Barrier")
    ]


@pytest.mark.parametrize("strategy", ["Rolling", "Barrier"])
def test_who_has_proved_nothing_falls_back_though_it_is_paused(strategy: str) -> None:
    paused = worker(1, Stage.PAUSED, **({"prepared": None} | REFUSED))
    ready = worker(1, Stage.PAUSED, **({"prepared": "step-1"} | REFUSED))

    before = whose(commands(asking(worker(0), paused, strategy=strategy)), "qwen-1")
    after = whose(commands(asking(worker(0), ready, strategy=strategy)), "qwen-1")

    assert [(type(a), getattr(a, "version", "")) for a in (*before, *after)] == [
        (Prepare, "step-1"),
        (Update, "step-1"),
    ]


def test_who_can_serve_what_it_proved_is_resumed_and_does_not_prepare() -> None:
    seen = asking(worker(0), worker(1, Stage.PAUSED, proved="step-1", paused_s=1.0))

    assert whose(commands(seen), "qwen-1") == [Resume("qwen-1", "step-1", "rollout-1")]


def test_a_version_that_failed_is_not_kept_up_by_who_was_left_on_the_way_to_another() -> None:
    failed = worker(0, Stage.DOUBT, failure=problem(Code.PROOF_FAILED))
    left = worker(1, Stage.PAUSED, **LATE)
    trying = worker(1, Stage.PAUSED, prepared="step-2", proved="step-1", paused_s=1.0)

    told = [plan(asking(failed, one, onFailure="Rollback")).rollout for one in (left, trying)]

    assert [r.to for r in told if r] == ["step-1", "step-2"]
