"""Any worker, any history: no sequence of events serves weights that were not proved."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.stage_machine import (
    IllegalEventError,
    StageEvent,
    State,
    observe,
    step,
    steps_to,
)
from tests.proofs import proof
from tests.steps import EVENTS

PROOF = proof()


@dataclass(frozen=True)
class Happening:
    event: StageEvent
    boot: str
    version: str


HAPPENINGS = st.builds(
    Happening,
    st.sampled_from(StageEvent),
    st.sampled_from(["b1", "b2"]),
    st.sampled_from(["v1", "v2", "base"]),
)


def walk(state: State, happening: Happening) -> State:
    try:
        return step(
            state,
            happening.event,
            boot=happening.boot,
            version=happening.version,
            proof=PROOF,
        )
    except IllegalEventError:
        return state


def truly_held(held: str | None, happening: Happening) -> str | None:
    """Return what the engine holds after an event, proved or not."""
    if happening.event in {StageEvent.RELOADING, StageEvent.RELOAD_FAILED}:
        return None
    # A boot that is new to the sidecar may have been led to a version before.
    is_told = happening.event in {StageEvent.BOOTED, StageEvent.RELOADED}
    return happening.version if is_told else held


def demand_sound(state: State, held: str | None) -> None:
    if state.stage in {Stage.OPEN, Stage.PROVED}:
        assert state.proved == state.installed
        assert state.proof is not None
    if state.stage in {Stage.CLOSED, Stage.LOADING, Stage.LOADED, Stage.DOUBT}:
        assert state.proved is None
    assert state.proved in {None, held}
    assert not state.serving or state.stage not in {Stage.DOWN, Stage.CLOSED, Stage.DOUBT}
    assert (state.stage is Stage.DOWN) or state.lost_in is None


@given(st.lists(HAPPENINGS, max_size=40))
def test_what_must_hold_in_a_stage_holds_after_every_history(history: list[Happening]) -> None:
    state, held = State(), None
    for happening in history:
        before, state = state, walk(state, happening)
        if state is not before:
            held = truly_held(held, happening)
        demand_sound(state, held)


@given(st.lists(HAPPENINGS, max_size=40))
def test_doubt_ends_only_in_a_reload_a_loss_or_a_new_boot(history: list[Happening]) -> None:
    state = State()
    for happening in history:
        before, state = state, walk(state, happening)
        if before.stage is Stage.DOUBT and state.stage is not Stage.DOUBT:
            assert happening.event in {StageEvent.RELOADING, StageEvent.LOST, StageEvent.BOOTED}


@given(st.lists(HAPPENINGS, max_size=40), st.sampled_from(["b1", "b2", None]))
def test_what_is_seen_of_the_engine_can_always_happen(
    history: list[Happening], boot: str | None
) -> None:
    state = State()
    for happening in history:
        state = walk(state, happening)

    event = observe(state, boot)

    if event is not None:
        after = step(state, event, boot=boot)
        assert observe(after, boot) is None


def follow(state: State, version: str, through: Verb) -> State:
    """Take the steps that are left through one of them, none of which fails."""
    for verb in steps_to(state, version, through):
        if state.stage is Stage.LOADED and verb is Verb.PAUSE:
            continue
        for event in EVENTS[verb]:
            state = step(state, event, version=version, proof=PROOF)
    return state


@given(
    st.lists(HAPPENINGS, max_size=40),
    st.sampled_from(["v1", "base"]),
    st.lists(st.sampled_from([Verb.PAUSE, Verb.VERIFY]), max_size=4),
)
def test_from_wherever_the_engine_runs_the_steps_lead_to_the_version_in_any_parts(
    history: list[Happening], version: str, parts: list[Verb]
) -> None:
    state = State()
    for happening in history:
        state = walk(state, happening)
    if state.stage in {Stage.DOWN, Stage.LOADING}:
        return
    for through in parts:
        was_open = state.stage is Stage.OPEN
        state = follow(state, version, through)
        assert state.stage is not Stage.OPEN or was_open, "only a resume opens"
        if through is Verb.VERIFY:
            assert state.proved == version

    state = follow(state, version, Verb.RESUME)

    assert (state.stage, state.proved) == (Stage.OPEN, version)
