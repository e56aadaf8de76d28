"""The client that RL samplers have, renderers 0.1.12, reads what the engine answers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from renderers.base import ParsedResponse, RenderedTokens
from renderers.client import generate

from tests.contract.subject import Subject

TOKENS = [11, 12, 13]
MESSAGES = [{"role": "user", "content": "one two"}]


@dataclass(frozen=True)
class Renderer:
    """Renders every conversation to the same ids, and reads none: no tokenizer is needed."""

    tokens: tuple[int, ...] = tuple(TOKENS)

    def get_stop_token_ids(self) -> list[int]:
        return [2]

    def render(self, _messages: object, **_named: object) -> RenderedTokens:
        return RenderedTokens(list(self.tokens), [0] * len(self.tokens))

    def parse_response(self, ids: list[int], **_named: object) -> ParsedResponse:
        return ParsedResponse(" ".join(map(str, ids)))


@dataclass(frozen=True)
class Sampler:
    client: AsyncOpenAI
    model: str

    async def sample(self, renderer: Renderer, **named: Any) -> dict[str, Any]:
        """Ask as verifiers do."""
        named = {"sampling_params": {"max_tokens": 3, "temperature": 0}} | named
        found: dict[str, Any] = await generate(
            client=self.client, renderer=renderer, messages=MESSAGES, model=self.model, **named
        )
        return found


@pytest.fixture
async def sampler(subject: Subject) -> AsyncIterator[Sampler]:
    """The client, on the address of a worker that serves its first version."""
    await subject.serve(subject.versions.first)
    url = str(subject.engine.base_url).rstrip("/")
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield Sampler(client, subject.model_name)


async def test_renderers_get_each_token_and_its_log_probability(
    sampler: Sampler, subject: Subject
) -> None:
    sampling = {"max_tokens": 3, "logprobs": 1}
    choice = (await subject.continue_from(TOKENS, sampling)).json()["choices"][0]

    found = await sampler.sample(Renderer())

    assert found["prompt_ids"] == TOKENS
    assert found["completion_ids"] == choice["token_ids"]
    assert len(found["completion_logprobs"]) == 3
    assert found["finish_reason"] == "length"
    assert found["routed_experts"] is None
    assert found["request_id"]


async def test_renderers_pass_on_what_vllm_does_not_know(sampler: Sampler) -> None:
    sampling = {"max_tokens": 2, "cache_salt": "a", "routed_experts_prompt_start": 1, "nobody": 1}

    found = await sampler.sample(Renderer(), sampling_params=sampling, cache_salt="b", priority=1)

    assert len(found["completion_ids"]) == 2


async def test_renderers_get_an_error_for_a_prompt_that_is_too_long(sampler: Sampler) -> None:
    with pytest.raises(BadRequestError, match="context length"):
        await sampler.sample(Renderer(tuple([11] * 1100)), max_prompt_len=5000)
