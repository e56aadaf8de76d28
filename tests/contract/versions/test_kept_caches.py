"""Caches with entries without a salt are flushed in every change, for any caller."""

from collections.abc import Awaitable, Callable

import pytest

from rlfleet_contract import paths
from tests.contract.subject import Subject
from tests.fakes.worker import Worker

Change = Callable[[Subject, str], Awaitable[None]]


async def by_its_trainer(subject: Subject, version: str) -> None:
    await subject.ok(paths.PREPARE_PATH, version)
    for path, body in (
        ("/pause?mode=keep&clear_cache=false", None),
        ("/update_weights", {"weight_dir": f"{subject.weights}/{version}"}),
        ("/resume", None),
    ):
        reply = await subject.admin.post(path, json=body)
        assert reply.status_code == 200, reply.text


async def preserved(subject: Subject, version: str) -> None:
    await subject.ok(paths.PREPARE_PATH, version)
    await subject.ok(paths.UPDATE_WEIGHTS_PATH, version, kv_cache="Preserve")


async def sends_a_recording(subject: Subject) -> None:
    """The route is not the fake's: it counts before vLLM has answered."""
    await subject.engine.post("/v1/audio/transcriptions", json={})


async def sends_text(subject: Subject) -> None:
    assert (await subject.chat()).status_code == 200


@pytest.mark.parametrize("change", [by_its_trainer, preserved])
@pytest.mark.parametrize(("sends", "expected"), [(sends_a_recording, 1), (sends_text, 0)])
async def test_caches_are_kept_only_while_a_salt_separates_all_in_them(
    subject: Subject,
    fake: Worker,
    change: Change,
    sends: Callable[[Subject], Awaitable[None]],
    expected: int,
) -> None:
    await subject.serve(subject.versions.first)
    await sends(subject)
    before = fake.engine.flushes

    await change(subject, subject.versions.second)

    assert fake.engine.flushes == before + expected
