"""The table of stages: every stage, every event, and what must hold in each."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from rlfleet_contract.paths import BASE_VERSION
from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.state.stage_machine import (
    BACK_TO,
    TABLE,
    IllegalEventError,
    Rescue,
    StageEvent,
    State,
    has_no_pause,
    observe,
    rescue,
    step,
    steps_to,
)
from tests.proofs import proof

F1, F2 = proof("v1"), proof("v2")
PROVED = State(boot="b1", installed="v1", proved="v1", proof=F1, prepared="v2", serving=True)
STATES: dict[Stage, State] = {
    Stage.DOWN: replace(PROVED, stage=Stage.DOWN, lost_in=Stage.OPEN, serving=False),
    Stage.CLOSED: State(stage=Stage.CLOSED, boot="b1", installed=BASE_VERSION),
    Stage.OPEN: replace(PROVED, stage=Stage.OPEN),
    Stage.PAUSED: replace(PROVED, stage=Stage.PAUSED),
    Stage.LOADING: replace(PROVED, stage=Stage.LOADING, proved=None, proof=None),
    Stage.LOADED: replace(PROVED, stage=Stage.LOADED, installed="v2", proved=None, proof=None),
    Stage.PROVED: replace(PROVED, stage=Stage.PROVED),
    Stage.DOUBT: State(stage=Stage.DOUBT, boot="b1", installed="v2", prepared="v2"),
}
UNPROVED = {Stage.LOADING, Stage.LOADED, Stage.DOUBT}
FACTS: dict[str, Any] = {"boot": "b2", "version": "v2", "proof": F2}


@pytest.mark.parametrize(("stage", "event"), list(product(Stage, StageEvent)))
def test_every_event_in_every_stage_ends_in_a_known_stage_or_in_the_one_error(
    stage: Stage, event: StageEvent
) -> None:
    state = STATES[stage]
    before = replace(state)
    try:
        after = step(state, event, **FACTS)
    except IllegalEventError:
        assert state == before
        assert TABLE[stage].get(event) is None or event in {StageEvent.OPENED, StageEvent.RELEASED}
    else:
        assert after.stage in Stage
        assert after.stage == TABLE[stage].get(event, BACK_TO[Stage.OPEN])


def test_the_tables_name_every_stage() -> None:
    assert set(TABLE) == set(Stage)
    assert set(BACK_TO) == set(Stage) - {Stage.DOWN}


@pytest.mark.parametrize("stage", Stage)
def test_a_new_boot_voids_everything_but_what_is_on_disk(stage: Stage) -> None:
    after = step(STATES[stage], StageEvent.BOOTED, boot="b2", version=BASE_VERSION)

    assert after == State(
        stage=Stage.CLOSED,
        boot="b2",
        installed=BASE_VERSION,
        prepared=STATES[stage].prepared,
    )


@pytest.mark.parametrize("installed", [None, BASE_VERSION])
def test_a_boot_whose_weights_were_replaced_has_no_boot_weights(installed: str | None) -> None:
    after = step(State(), StageEvent.BOOTED, boot="b2", version=installed)

    assert (after.stage, after.installed) == (Stage.CLOSED, installed)
    is_known = installed is not None
    way = (Verb.VERIFY, Verb.RESUME) if is_known else tuple(Verb)[1:6]
    assert steps_to(after, BASE_VERSION) == way
    if not is_known:
        with pytest.raises(IllegalEventError):
            step(after, StageEvent.PROVED, proof=F1)


@pytest.mark.parametrize("stage", BACK_TO)
def test_an_engine_that_was_only_silent_comes_back_where_it_was_or_in_doubt(stage: Stage) -> None:
    lost = step(step(STATES[stage], StageEvent.LOST), StageEvent.LOST)
    assert (lost.stage, lost.serving) == (Stage.DOWN, False)

    back = step(lost, StageEvent.BACK)

    assert back.stage is (Stage.DOUBT if stage in UNPROVED else stage)
    if stage is Stage.OPEN:
        assert back == STATES[stage]


@pytest.mark.parametrize("event", StageEvent)
def test_only_a_reload_or_another_boot_ends_a_doubt(event: StageEvent) -> None:
    try:
        after = step(STATES[Stage.DOUBT], event, **FACTS)
    except IllegalEventError:
        return
    ends = {StageEvent.RELOADING: Stage.LOADING, StageEvent.BOOTED: Stage.CLOSED}
    assert after.stage is ends.get(event, Stage.DOWN if event is StageEvent.LOST else Stage.DOUBT)


@pytest.mark.parametrize("stage", sorted(UNPROVED))
def test_nothing_is_proved_from_the_reload_on(stage: Stage) -> None:
    into = next(
        (state, event)
        for state, event in product(STATES.values(), StageEvent)
        if TABLE[state.stage].get(event) is stage
    )

    after = step(*into, version="v2")

    assert (after.proved, after.proof) == (None, None)


def test_a_pause_that_nothing_was_proved_before_cannot_be_opened() -> None:
    paused = step(STATES[Stage.CLOSED], StageEvent.PAUSING)

    with pytest.raises(IllegalEventError):
        step(paused, StageEvent.OPENED)
    assert step(paused, StageEvent.RELEASED).stage is Stage.CLOSED


def test_a_proved_version_is_not_forgotten_by_a_release() -> None:
    with pytest.raises(IllegalEventError):
        step(STATES[Stage.PAUSED], StageEvent.RELEASED)


def test_a_change_from_a_proved_version_keeps_serving_and_one_from_a_fresh_boot_does_not() -> None:
    way = (StageEvent.PAUSING, StageEvent.RELOADING, StageEvent.RELOADED, StageEvent.PROVED)
    for first, serving in ((Stage.OPEN, True), (Stage.CLOSED, False)):
        state = STATES[first]
        for event in way:
            state = step(state, event, version="v2", proof=F2)
            assert state.serving is serving
        assert step(state, StageEvent.OPENED).serving
    assert state.proved == "v2"


OBSERVED = {
    "the same boot": (Stage.OPEN, "b1", None),
    "another boot": (Stage.OPEN, "b2", StageEvent.BOOTED),
    "no boot": (Stage.OPEN, None, StageEvent.LOST),
    "still no boot": (Stage.DOWN, None, None),
    "the same boot again": (Stage.DOWN, "b1", StageEvent.BACK),
    "another boot after none": (Stage.DOWN, "b2", StageEvent.BOOTED),
}


@pytest.mark.parametrize(("stage", "boot", "event"), OBSERVED.values(), ids=OBSERVED)
def test_a_poll_of_the_engine_becomes_an_event(
    stage: Stage, boot: str | None, event: StageEvent | None
) -> None:
    assert observe(STATES[stage], boot) is event


@pytest.mark.parametrize("stage", BACK_TO)
def test_a_record_older_than_the_last_load_counts_like_another_boot_s(stage: Stage) -> None:
    known = step(State(), StageEvent.BOOTED, boot="b1", loads=3)
    lost = replace(known, stage=Stage.DOWN, lost_in=stage)
    is_doubt = BACK_TO[stage] is Stage.DOUBT

    assert observe(lost, "b1", 3) is StageEvent.BACK
    assert observe(lost, "b1", 4) is (StageEvent.BACK if is_doubt else StageEvent.BOOTED)


def test_a_proof_holds_for_the_loads_before_it() -> None:
    proved = step(STATES[Stage.LOADED], StageEvent.PROVED, proof=F2, loads=4)

    assert proved.loads == 4


WAYS = {
    "served already": (Stage.OPEN, "v1", ()),
    "proved already": (Stage.PROVED, "v1", (Verb.RESUME,)),
    "paused over it": (Stage.PAUSED, "v1", (Verb.RESUME,)),
    "booted with it": (Stage.CLOSED, BASE_VERSION, (Verb.VERIFY, Verb.RESUME)),
    "loaded already": (Stage.LOADED, "v2", (Verb.VERIFY, Verb.RESUME)),
}


@pytest.mark.parametrize(("stage", "version", "steps"), WAYS.values(), ids=WAYS)
def test_an_update_takes_only_the_steps_that_are_left(
    stage: Stage, version: str, steps: tuple[Verb, ...]
) -> None:
    assert steps_to(STATES[stage], version) == steps


@pytest.mark.parametrize("stage", list(Stage)[1:])
def test_an_update_to_anything_else_takes_the_whole_way(stage: Stage) -> None:
    assert steps_to(STATES[stage], "v9") == tuple(Verb)[1:6]


PARTS = {
    "paused": (Stage.OPEN, "v2", Verb.PAUSE, (Verb.PAUSE, Verb.FLUSH)),
    "proved from open": (Stage.OPEN, "v2", Verb.VERIFY, tuple(Verb)[1:5]),
    "proved from a pause": (Stage.PAUSED, "v2", Verb.VERIFY, tuple(Verb)[1:5]),
    "proved, and to be opened": (Stage.PROVED, "v1", Verb.RESUME, (Verb.RESUME,)),
    "a pause over it is not proved again": (Stage.PAUSED, "v1", Verb.VERIFY, ()),
    "loaded already, and to be paused": (Stage.LOADED, "v2", Verb.PAUSE, ()),
    "loaded already, and to be proved": (Stage.LOADED, "v2", Verb.VERIFY, (Verb.VERIFY,)),
    "another is proved": (Stage.PROVED, "v2", Verb.PAUSE, (Verb.PAUSE, Verb.FLUSH)),
}


@pytest.mark.parametrize(("stage", "version", "through", "steps"), PARTS.values(), ids=PARTS)
def test_a_part_of_an_update_ends_with_the_step_that_it_names(
    stage: Stage, version: str, through: Verb, steps: tuple[Verb, ...]
) -> None:
    assert steps_to(STATES[stage], version, through) == steps


@pytest.mark.parametrize("stage", [Stage.OPEN, Stage.PROVED])
@pytest.mark.parametrize("through", [Verb.PAUSE, Verb.VERIFY])
def test_a_worker_that_stands_further_has_nothing_left_to_do(stage: Stage, through: Verb) -> None:
    assert steps_to(STATES[stage], "v1", through) == ()


def test_alone_a_sidecar_never_opens_what_is_not_proved() -> None:
    for stage, state in STATES.items():
        way = rescue(stage)
        if way is Rescue.OPEN:
            assert state.proved
        if way is Rescue.UNDO:
            assert stage is Stage.PAUSED
    assert rescue(Stage.DOUBT) is rescue(Stage.LOADED) is Rescue.END
    assert rescue(Stage.OPEN) is rescue(Stage.CLOSED) is rescue(Stage.DOWN) is None


@pytest.mark.parametrize("stage", Stage)
def test_only_a_change_that_holds_proved_weights_is_over_where_its_gate_is_open(
    stage: Stage,
) -> None:
    assert has_no_pause(stage, is_open=True) is (stage in {Stage.PAUSED, Stage.PROVED})
    assert not has_no_pause(stage, is_open=False)
