"""Checks of token ids against the vocabulary of vLLM's serving objects."""

import pytest

from rlfleet_engine.json_body import FieldError
from rlfleet_engine.vllm.served import ServedVocabulary, vocabulary_of
from rlfleet_engine.vllm.vocabulary import check_ids, tokens_of
from tests.fakes.tokenizer import END, TOKENIZER, VOCABULARY, Serving


def test_a_turn_ends_by_the_tokenizer_s_and_the_generation_config_s_ids() -> None:
    assert VOCABULARY.ends == {END, 0}


def test_a_model_may_name_one_end_or_none() -> None:
    serving = Serving(512)
    for named, ends in ((7, {7, END}), (None, {END})):
        serving.model_config.try_get_generation_config = lambda named=named: {"eos_token_id": named}

        assert ServedVocabulary(serving).ends == ends


def test_an_id_of_the_model_may_have_no_token() -> None:
    last, none = TOKENIZER.max_token_id, TOKENIZER.max_token_id + 1

    assert VOCABULARY.tokens([none, 4, last])[0] is None
    check_ids(VOCABULARY, [none], "tokens")
    with pytest.raises(FieldError, match=f"tokens has {none} at index 1"):
        tokens_of(VOCABULARY, [4, none], "tokens")


def test_the_model_has_no_id_from_its_size_on() -> None:
    check_ids(VOCABULARY, [511], "tokens")
    with pytest.raises(FieldError, match="tokens has 512 at index 0"):
        check_ids(VOCABULARY, [512], "tokens")


def test_the_vocabulary_of_a_server_is_read_once() -> None:
    scope = {"app": Serving(512).application}

    assert vocabulary_of(scope) is vocabulary_of(scope)
