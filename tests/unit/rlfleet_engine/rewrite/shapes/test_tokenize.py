"""/detokenize takes the ids that the model has, with or without a token, and no other."""

import pytest

from rlfleet_engine.asgi import compact
from rlfleet_engine.json_body import FieldError
from rlfleet_engine.rewrite.inner_calls import InnerCalls
from rlfleet_engine.rewrite.shapes.tokenize import turn_back
from tests.fakes.asgi import body_of
from tests.fakes.tokenizer import VOCABULARY, Serving

ASK = InnerCalls(body_of, {"app": Serving(512).application})  # type: ignore[arg-type]


async def test_an_id_that_the_engine_may_sample_is_vllm_s_though_it_has_no_token() -> None:
    highest = VOCABULARY.size - 1
    assert VOCABULARY.tokens([highest]) == [None]

    await turn_back(compact({"tokens": [4, highest]}), ASK)


async def test_an_id_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(FieldError, match="no token of this model"):
        await turn_back(compact({"tokens": [4, VOCABULARY.size]}), ASK)
