"""Which verb is allowed in which stage: one table over all."""

from itertools import product

import pytest

from rlfleet_contract.worker.commands import Verb
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.report import Stage
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.state.preconditions import CommandVerdict, judge, judge_update
from tests.unit.rlfleet_sidecar.state.test_stage_machine import STATES

DO, DONE = CommandVerdict.DO, CommandVerdict.DONE
WRONG, DOUBT, DOWN = Code.WRONG_STAGE, Code.ENGINE_IN_DOUBT, Code.ENGINE_UNREACHABLE

# What each verb on v2, which is prepared, comes to in: down, closed, open, paused,
# loading, loaded (v2), proved, doubt. Where nothing else is said, v1 is proved.
EXPECTED: dict[Verb, tuple[CommandVerdict | Code, ...]] = {
    Verb.PREPARE: (DO, DO, DO, DO, DO, DO, DO, DO),
    Verb.PAUSE: (DOWN, DO, DO, DO, WRONG, DONE, DO, DO),
    Verb.FLUSH: (DOWN, WRONG, WRONG, DO, WRONG, DO, WRONG, DO),
    Verb.RELOAD: (DOWN, WRONG, WRONG, DO, WRONG, DONE, WRONG, DO),
    Verb.VERIFY: (DOWN, WRONG, WRONG, WRONG, WRONG, DO, WRONG, DOUBT),
    Verb.RESUME: (DOWN, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG, DOUBT),
}


def judged(verb: Verb, stage: Stage, version: str) -> CommandVerdict | Code:
    try:
        return judge(STATES[stage], verb, version)
    except SidecarError as error:
        return error.code


@pytest.mark.parametrize(("verb", "stage"), list(product(EXPECTED, Stage)))
def test_each_verb_in_each_stage_is_done_refused_or_due(verb: Verb, stage: Stage) -> None:
    assert judged(verb, stage, "v2") == EXPECTED[verb][list(Stage).index(stage)]


def test_a_verb_whose_effect_is_there_is_done() -> None:
    for stage in (Stage.OPEN, Stage.PROVED):
        assert judged(Verb.RELOAD, stage, "v1") is DONE
        assert judged(Verb.VERIFY, stage, "v1") is DONE
    assert judged(Verb.RESUME, Stage.OPEN, "v1") is DONE
    assert judged(Verb.RESUME, Stage.PROVED, "v1") is DO
    assert judged(Verb.RESUME, Stage.PAUSED, "v1") is DO


def test_only_a_prepared_version_is_reloaded() -> None:
    assert judged(Verb.RELOAD, Stage.PAUSED, "v3") is Code.NOT_PREPARED
    with pytest.raises(SidecarError, match="prepare first") as caught:
        judge_update(STATES[Stage.OPEN], "v3")
    assert caught.value.code is Code.NOT_PREPARED


def test_a_later_step_s_rejection_comes_before_the_pause() -> None:
    with pytest.raises(SidecarError) as caught:
        judge_update(STATES[Stage.OPEN], "v3", Verb.PAUSE)
    assert caught.value.code is Code.NOT_PREPARED
    assert judge_update(STATES[Stage.OPEN], "v2", Verb.PAUSE) == (Verb.PAUSE, Verb.FLUSH)


def test_nothing_is_updated_while_the_engine_is_down() -> None:
    with pytest.raises(SidecarError) as caught:
        judge_update(STATES[Stage.DOWN], "v1")
    assert caught.value.code is Code.ENGINE_UNREACHABLE


def test_an_update_does_not_cross_a_transfer() -> None:
    with pytest.raises(SidecarError, match="sending weights"):
        judge_update(STATES[Stage.LOADING], "v2")


def test_a_prepared_version_leads_an_engine_out_of_doubt() -> None:
    assert judge_update(STATES[Stage.DOUBT], "v2") == tuple(Verb)[1:6]
