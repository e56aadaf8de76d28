"""What a trainer says its own model answers, and when the engine's answer is another."""

import pytest
from pydantic import ValidationError

from rlfleet_contract.worker.problems import Code
from rlfleet_sidecar.errors import SidecarError
from rlfleet_sidecar.proof.trainer_probe import TrainerProbe

PROBE = TrainerProbe(tokens=(5, 6, 7), logprobs=(-1.0, -2.0), tolerance=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": [5], "logprobs": [], "tolerance": 0.1},
        {"tokens": [5, 6], "logprobs": [-1.0, -2.0], "tolerance": 0.1},
        {"tokens": [5, 6], "logprobs": [float("nan")], "tolerance": 0.1},
        {"tokens": [5, 6], "logprobs": [-1.0], "tolerance": 0},
        {"tokens": [5, 6], "logprobs": [-1.0]},
        {"tokens": [5, -6], "logprobs": [-1.0], "tolerance": 0.1},
        {"tokens": [5] * 257, "logprobs": [-1.0] * 256, "tolerance": 0.1},
    ],
)
def test_a_probe_that_says_nothing_definite_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrainerProbe.model_validate(wrong)


def test_an_answer_within_the_tolerance_passes() -> None:
    PROBE.demand((-1.05, -1.95))


def test_an_answer_beyond_it_fails_the_proof() -> None:
    with pytest.raises(SidecarError, match=r"from the trainer's by 0\.1500") as failed:
        PROBE.demand((-1.0, -2.15))
    assert failed.value.code is Code.PROOF_FAILED


def test_a_token_that_the_model_does_not_know_is_the_checkpoint_s_fault() -> None:
    PROBE.demand_known("m.json", 8)
    with pytest.raises(SidecarError, match=r"token 7 .*vocabulary: 7") as refused:
        PROBE.demand_known("m.json", 7)
    assert refused.value.code is Code.CHECKPOINT_INVALID
