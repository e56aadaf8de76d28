"""A simulated worker goes where the sidecar's own rules lead a real one."""

from itertools import product

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage, WorkerReport
from rlfleet_operator.core.model.actions import Update
from rlfleet_operator.core.model.world import Worker
from rlfleet_operator.core.simulation.model_worker import after_weights
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.preconditions import judge_update
from rlfleet_sidecar.state.stage_machine import State, step
from tests.proofs import proof
from tests.steps import EVENTS

PROOF = proof()
VERSIONS = (None, "good", "other")
STANDS = [
    *product([Stage.CLOSED, Stage.DOUBT], [None], VERSIONS),
    *product([Stage.PAUSED], VERSIONS, VERSIONS),
    *product([Stage.PROVED, Stage.OPEN], ["good", "other"], VERSIONS),
]


def led(stage: Stage, proved: str | None, prepared: str | None, through: Verb) -> State:
    """Return where a real worker ends: one that is refused stays where it is."""
    state = State(stage, "b", proved or "base", proved, PROOF if proved else None, prepared)
    try:
        verbs = judge_update(state, "good", through)
    except SidecarError:
        return state
    for event in (event for verb in verbs for event in EVENTS[verb]):
        state = step(state, event, version="good", proof=PROOF)
    return state


@pytest.mark.parametrize("through", [Verb.PAUSE, Verb.VERIFY, Verb.RESUME])
@pytest.mark.parametrize(("stage", "proved", "prepared"), STANDS)
def test_a_simulated_worker_is_led_as_far_as_a_real_one(
    stage: Stage, proved: str | None, prepared: str | None, through: Verb
) -> None:
    stood = WorkerReport(session="b", boot="b", stage=stage, installed=proved or "base")
    stood = stood.model_copy(update={"proved": proved, "prepared": prepared})
    update = Update("qwen-0", "good", "rollout-1", None, through)

    after = after_weights(Worker("qwen-0", 0, report=stood), update, {}).report

    real = led(stage, proved, prepared, through)
    assert after is not None
    assert (after.stage, after.proved, after.installed) == (
        real.stage,
        real.proved,
        real.installed,
    )
