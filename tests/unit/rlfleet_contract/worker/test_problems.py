"""What a problem's code fixes, for each kind of client."""

import pytest

from rlfleet_contract.worker.problems import Code, Problem

PASSING = {Code.BUSY, Code.NOT_PREPARED, Code.ENGINE_RESTARTED}
"""What passes by itself, in the time for which a trainer's client repeats."""
FINAL = {
    Code.RELOAD_FAILED,
    Code.TRANSFER_FAILED,
    Code.PROOF_FAILED,
    Code.CACHE_FULL,
    Code.ADAPTER_FAILED,
}
"""What is not mended by repeating."""


@pytest.mark.parametrize("code", Code)
def test_a_client_that_repeats_every_5xx_gets_one_only_where_that_helps(code: Code) -> None:
    status, own = code.trainer_status, code.status

    assert (status >= 500) == (code in PASSING or (own >= 500 and code not in FINAL))
    assert status < 500 or code.retryable
    assert status == own or code in PASSING | FINAL


@pytest.mark.parametrize("code", Code)
def test_a_client_that_repeats_404_and_500_gets_them_only_where_that_helps(code: Code) -> None:
    is_awaited = code in {Code.CHECKPOINT_INCOMPLETE, Code.VERSION_NOT_FOUND}

    assert (code.adapter_status == 404) == is_awaited
    assert code.adapter_status == (404 if is_awaited else min(code.trainer_status, 500))


def test_a_code_is_its_word_wherever_it_is_written() -> None:
    said = Problem.of(Code.BUSY, "why")

    assert (f"{said.code}", said.model_dump(mode="json")["code"]) == ("Busy", "Busy")
    assert Problem.model_validate_json(said.model_dump_json()).code is Code.BUSY
