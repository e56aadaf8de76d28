"""Which layers of a proof hold, and which lie each of them finds."""

from dataclasses import replace
from typing import Any

import pytest

from rlfleet_contract.engine.rank_report import Installed, ReadBack
from rlfleet_contract.worker.problems import Code
from rlfleet_contract.worker.proof import Evidence, Proof
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.evidence import (
    LoadedWeights,
    demand_alike,
    demand_consumed,
    demand_steady,
    difference,
    share_of,
    shown_by,
)
from rlfleet_sidecar.proof.probe import BadAnswerError, ProbeAnswer
from tests.proofs import proof

ANSWER = ProbeAnswer((1, 2), (-1.0, -2.0))
READ = ReadBack(digest="m2", nbytes=100, changed=True, fed=80, as_fed=80)
RANK = Installed(tensors=3, nbytes=100, digest="d2", previous="d1")
OTHER_BEFORE = proof("v1", tensors="d1", logprobs=(-1.5, -2.5))
SAME_BEFORE = proof("v1", tensors="d1", logprobs=(-1.0, -2.0))
LOAD = LoadedWeights("v2", "b1", "d2", (RANK, RANK), OTHER_BEFORE)
STOOD = READ.model_copy(update={"changed": False, "fed": 0, "as_fed": 0})


def ranks(**fields: Any) -> tuple[Installed, ...]:
    return (RANK.model_copy(update=fields),) * 2


def shown(load: LoadedWeights, *memory: ReadBack | None) -> tuple[Evidence, ...]:
    return shown_by(load, memory, ANSWER, 0)


def refused(
    load: LoadedWeights,
    read: ReadBack | None,
    answer: ProbeAnswer = ANSWER,
    noise: float = 0.0,
) -> str:
    with pytest.raises(SidecarError) as caught:
        shown_by(load, (read, read), answer, noise)
    assert caught.value.code is Code.PROOF_FAILED
    return caught.value.message


# --- what one engine shows --------------------------------------------------------------------


def test_a_sound_reload_shows_what_was_installed_and_what_stands() -> None:
    assert shown(LOAD, READ, READ) == (Evidence.INSTALLED, Evidence.PARAMETERS)


@pytest.mark.parametrize("memory", [(None, None), (READ, None), (READ,), ()])
def test_memory_that_was_not_read_is_not_shown(memory: tuple[ReadBack | None, ...]) -> None:
    assert shown(LOAD, *memory) == (Evidence.INSTALLED,)


def test_parameters_that_stayed_are_named() -> None:
    stayed = READ.model_copy(update={"kept": ("model.norm.weight",)})
    assert "model.norm.weight" in refused(LOAD, stayed)


def test_parameters_with_other_values_than_the_checkpoint_s_are_named() -> None:
    wrong = READ.model_copy(update={"differing": ("model.norm.weight",)})
    assert "differs from the checkpoint in model.norm.weight" in refused(LOAD, wrong)


@pytest.mark.parametrize("read", [STOOD, None], ids=["memory stood", "memory not read"])
def test_an_engine_in_which_nothing_moved_kept_its_old_weights(read: ReadBack | None) -> None:
    load = replace(LOAD, before=SAME_BEFORE)

    assert "kept old weights" in refused(load, read)
    near = ProbeAnswer((1, 2), (-1.005, -2.0))
    assert "kept old weights" in refused(load, read, near, noise=0.01)


def test_answers_that_moved_acquit_a_memory_of_which_only_a_part_is_seen() -> None:
    """On CPU vLLM keeps linear layers where they cannot be read."""
    assert shown(LOAD, STOOD, STOOD) == (Evidence.INSTALLED,)


def test_a_change_too_small_for_the_probe_is_believed_if_memory_moved() -> None:
    load = replace(LOAD, before=SAME_BEFORE)
    assert shown(load, READ, READ) == (Evidence.INSTALLED, Evidence.PARAMETERS)


def test_the_same_checkpoint_again_may_leave_everything_as_it_was() -> None:
    load = replace(LOAD, ranks=ranks(previous="d2"), before=SAME_BEFORE)
    assert shown(load, STOOD, STOOD) == (Evidence.INSTALLED, Evidence.PARAMETERS)


def test_an_engine_of_which_nothing_was_proved_before_cannot_have_kept_it() -> None:
    assert shown(replace(LOAD, before=None), STOOD, STOOD) == (Evidence.INSTALLED,)


def test_a_first_reload_shows_parameters_only_by_what_was_fed() -> None:
    first = replace(LOAD, ranks=ranks(previous=None), before=None)
    partly = READ.model_copy(update={"as_fed": 40})

    assert Evidence.PARAMETERS in shown(first, READ, READ)
    assert Evidence.PARAMETERS not in shown(first, partly, partly)


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        (((100, 25),), 0.75),
        (((100, 25), (100, 50)), 0.5),
        (((100, 25), (0, 0)), None),
        (((100, 0), None), None),
        ((), None),
    ],
    ids=["one", "the rank with the least", "one does not know", "one was not read", "none"],
)
def test_the_share_that_was_read_is_that_of_the_rank_with_the_least(
    sizes: tuple[tuple[int, int] | None, ...], share: float | None
) -> None:
    read = [
        None if one is None else READ.model_copy(update={"whole": one[0], "unseen": one[1]})
        for one in sizes
    ]

    assert share_of(read) == share


# --- what the ranks consumed ------------------------------------------------------------------


@pytest.mark.parametrize(
    "consumed",
    [
        (),
        (RANK, RANK.model_copy(update={"tensors": 2})),
        (RANK, RANK.model_copy(update={"nbytes": 99})),
        (RANK, RANK.model_copy(update={"digest": "d3"})),
    ],
    ids=["no rank", "too few", "too little", "other bytes"],
)
def test_ranks_must_consume_what_is_promised_and_the_same(consumed: tuple[Installed, ...]) -> None:
    with pytest.raises(SidecarError) as caught:
        demand_consumed(3, 100, "d2", consumed)
    assert caught.value.code is Code.RELOAD_FAILED


# --- the same answer twice --------------------------------------------------------------------


def test_log_probabilities_must_agree_within_the_tolerance() -> None:
    near = ProbeAnswer((1, 2), (-1.01, -2.0))
    demand_steady([ANSWER, near], 0.02)
    with pytest.raises(BadAnswerError, match="two answers"):
        demand_steady([ANSWER, near], 0.005)


def test_of_tokens_that_part_a_third_answer_must_side_with_one() -> None:
    other, third = replace(ANSWER, tokens=(1, 3)), replace(ANSWER, tokens=(1, 4))

    demand_steady([ANSWER, other, ANSWER], 0.02)
    for apart in ([ANSWER, other], [ANSWER, other, third]):
        with pytest.raises(BadAnswerError, match=f"{len(apart)} greedy answers"):
            demand_steady(apart, 0.02)


# --- peers ------------------------------------------------------------------------------------

FOUND = proof(tensors="d1", parameters=("m1",), tokens="t1", logprobs=(-1.0, -2.0), tolerance=0.02)
UNLIKE: dict[str, dict[str, Any]] = {
    "another version": {"version": "step-2"},
    "other tensors": {"tensors": "d2"},
    "another memory": {"parameters": ("m2",)},
    "another rank": {"parameters": ("m1", "m1")},
    "other log probabilities": {"logprobs": (-1.0, -2.05)},
    "other tokens, memory not read": {"parameters": (), "tokens": "t2"},
}
ALIKE: dict[str, dict[str, Any]] = {
    "the same": {},
    "noise": {"logprobs": (-1.015, -2.0)},
    "noise by the peer's measure": {"logprobs": (-1.05, -2.0), "tolerance": 0.1},
    "a checkpoint without a digest": {"tensors": None},
    "a checkpoint that another release digested": {"tensors": None, "checkpoint": "d2"},
    "a memory that cannot be read": {"parameters": ()},
    "a near tie over the same memory": {"tokens": "t2"},
    "a longer prompt": {"logprobs": (-1.0, -2.0, -3.0), "tokens": "t2", "parameters": ()},
    "another boot": {"boot": "b2"},
}


def peer(fields: dict[str, Any]) -> Proof:
    return FOUND.model_copy(update=fields)


@pytest.mark.parametrize("fields", UNLIKE.values(), ids=UNLIKE)
def test_a_worker_unlike_its_peer_is_rejected_with_the_difference(fields: dict[str, Any]) -> None:
    assert difference(peer(fields), FOUND)
    with pytest.raises(SidecarError) as caught:
        demand_alike(peer(fields), FOUND)
    assert caught.value.code is Code.PROOF_FAILED


@pytest.mark.parametrize("fields", ALIKE.values(), ids=ALIKE)
def test_a_worker_like_its_peer_shows_that(fields: dict[str, Any]) -> None:
    assert demand_alike(peer(fields), FOUND) == (Evidence.PEERS,)


def test_without_a_peer_nothing_is_claimed_and_nothing_proved_is_unlike_any() -> None:
    assert demand_alike(None, FOUND) == ()
    with pytest.raises(SidecarError, match="nothing is proved"):
        demand_alike(FOUND, None)
