"""Salts of the prefix cache: the same under the same version hits, anything else does not."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rlfleet_contract import paths
from tests.contract.subject import Subject

PROMPT_TOKENS = 400
"""Longer than some blocks of the cache: vLLM's have 16 tokens, on a CPU 128."""


@dataclass(frozen=True)
class Prompt:
    """A long new prompt; a request with it returns how much of it the cache had."""

    subject: Subject
    tokens: list[int]

    async def complete(self, **fields: Any) -> int:
        return cached_of(await self.subject.complete(prompt=self.tokens, max_tokens=2, **fields))

    async def generate(self, sampling: dict[str, Any], **fields: Any) -> int:
        return cached_of(await self.subject.continue_from(self.tokens, sampling, **fields))


@pytest.fixture
async def prompt(subject: Subject) -> Prompt:
    """Return one for a worker that serves the first version."""
    await subject.serve(subject.versions.first)
    return Prompt(subject, [*uuid4().bytes, *(100 + place % 90 for place in range(PROMPT_TOKENS))])


def cached_of(reply: httpx.Response) -> int:
    assert reply.status_code == 200, reply.text
    details = reply.json()["usage"].get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


async def preserved(subject: Subject, version: str) -> None:
    """Change the version and keep what is in the cache."""
    await subject.ok(paths.PREPARE_PATH, version)
    await subject.ok(paths.UPDATE_WEIGHTS_PATH, version, kv_cache="Preserve")


async def test_the_same_salt_hits_and_another_does_not(prompt: Prompt) -> None:
    assert await prompt.complete(cache_salt="a") == 0

    assert await prompt.complete(cache_salt="a") > 0
    assert await prompt.complete(cache_salt="b") == 0
    assert await prompt.complete() == 0
    assert await prompt.complete() > 0


async def test_a_salt_is_one_salt_wherever_clients_put_it(prompt: Prompt) -> None:
    assert await prompt.complete(cache_salt="a") == 0

    assert await prompt.complete(nvext={"cache_salt": "a"}) > 0
    assert await prompt.generate({"cache_salt": "a"}) > 0
    assert await prompt.generate({}, cache_salt="a") > 0
    assert await prompt.generate({}, nvext={"cache_salt": "a"}) > 0
    assert await prompt.generate({"cache_salt": "b"}) == 0


async def test_the_same_salt_does_not_hit_what_another_version_computed(prompt: Prompt) -> None:
    """With the cache preserved: it is the salt that keeps them apart, and no flush."""
    subject = prompt.subject
    await prompt.complete(cache_salt="a")
    await prompt.complete()

    await preserved(subject, subject.versions.second)

    assert await prompt.complete() > 0
    assert await prompt.complete(cache_salt="a") == 0
    assert await prompt.complete(cache_salt="a") > 0
    await preserved(subject, subject.versions.first)
    assert await prompt.complete(cache_salt="a") == 0


async def by_its_trainer(subject: Subject, version: str | None) -> None:
    """Pause and resume as prime-rl and SkyRL do, the caches kept; change the version if one is."""
    named = None if version is None else f"{subject.weights}/{version}"
    for path, body in (
        ("/pause?mode=keep&clear_cache=false", None),
        ("/update_weights", {"weight_dir": named}),
        ("/resume", None),
    ):
        reply = await subject.admin.post(path, json=body)
        assert reply.status_code == 200, reply.text


async def test_caches_that_a_trainer_keeps_are_read_by_no_other_version(prompt: Prompt) -> None:
    """Without a salt too: its pause asks for no flush, and not for another version's cache."""
    subject = prompt.subject
    await prompt.complete()
    await prompt.complete(cache_salt="a")

    for version in (subject.versions.second, subject.versions.first, subject.versions.second):
        await by_its_trainer(subject, version)

        assert await prompt.complete() == 0
        assert await prompt.complete() > 0
        assert await prompt.generate({}) > 0
        assert await prompt.complete(cache_salt="a") == 0
        await by_its_trainer(subject, None)
        assert await prompt.complete() > 0
        assert await prompt.complete(cache_salt="a") > 0


async def test_without_a_salt_a_change_leaves_nothing_to_hit(prompt: Prompt) -> None:
    await prompt.complete()
    assert await prompt.complete() > 0

    await prompt.subject.serve(prompt.subject.versions.second)

    assert await prompt.complete() == 0


@pytest.mark.parametrize("salt", ["", 7, ["a"]])
async def test_a_salt_that_is_no_text_is_refused_by_its_name(prompt: Prompt, salt: object) -> None:
    subject = prompt.subject
    for reply in (
        await subject.complete(cache_salt=salt),
        await subject.complete(nvext={"cache_salt": salt}),
        await subject.continue_from([11, 12], {"cache_salt": salt}),
    ):
        assert reply.status_code == 400
        assert "cache_salt" in reply.json()["error"]["message"]
